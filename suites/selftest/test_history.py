"""History: what the guest reported survives the way to disk and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from histories import Op, atomic_register, register_of, with_tail

from labs.probe.history import FAILED, INITIAL, History


def history() -> History:
    clean = atomic_register(4, path="/a/cpu.max", operations=500, invalid=2)
    torn = with_tail(clean, [Op(9, "read", "1000000 2010000", 0, 10), Op(9, "read", "half\nü\x00", 20, 30)])
    empty = register_of([Op(1, "read", "100", 0, 5)], path="/b/cpu.weight")
    return History((torn, empty), seconds=1.5, cpus=2, dropped=3, facts={"kernel": "6.1.192", "seeds": [1, 2]})


def test_survives_disk(tmp_path: Path) -> None:
    saved = history()
    saved.save(tmp_path / "h.npz")
    loaded = History.load(tmp_path / "h.npz")
    assert (loaded.seconds, loaded.cpus, loaded.dropped, loaded.facts) == (1.5, 2, 3, saved.facts)
    for old, new in zip(saved.registers, loaded.registers, strict=True):
        assert (old.path, old.values, old.initial, old.foreign) == (new.path, new.values, new.initial, new.foreign)
        assert old.operations.dtype == new.operations.dtype
        np.testing.assert_array_equal(old.operations, new.operations)
        np.testing.assert_array_equal(old.expect, new.expect)


def test_evidence_is_never_overwritten(tmp_path: Path) -> None:
    history().save(tmp_path / "h.npz")
    with pytest.raises(FileExistsError):
        history().save(tmp_path / "h.npz")


def test_names_and_texts() -> None:
    seen = history()
    assert [register.path for register in seen.named("cpu.max")] == ["/a/cpu.max"]
    assert seen.operations == 503
    register = seen.registers[0]
    assert register.text(INITIAL) == "max 100000"
    assert register.text(FAILED) == "(failed)"
    assert register.text(0) == register.values[0]
    assert register.text(len(register.values) + 1) == "half\nü\x00"
