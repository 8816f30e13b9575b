"""Cells: which there are, and ids that are stable, unlike each other and fit for file names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from labs.errors import BadInput
from labs.matrix import Cell, axes_of, cells, one_cell
from labs.report.record import SAFE_NAME

KERNELS = [
    "6.1", "6.12", "6.1.192-3", "6.12.57-1~bpo12+1", "7.3~rc7-1~exp1", "1:2.3-4", "path:/x/bzImage", "path:/y/bzImage",
    "path:x/bzImage", "path:/x/bzImage ", "path:/x_y", "path:/x/y", "path:/x-y", "tree:/src/linux",
    "git:/src/linux#v6.6.3", "path:/a/ü", "path:/a/ö", "path:/" + "x" * 300, "path:/" + "x" * 301, "path:/a/b\nc",
    "../../etc", "a_b", "a-b", "A_B",
]  # fmt: skip
RUNTIMES = ["runc", "crun", "runc@1.1.15", "runc@v1.2.0", "path:/x/runc", "path:/y/runc", "runc_x"]


IDS = {
    ("6.1", "runc"): "6.1_runc",
    ("6.12.57-1~bpo12+1", "crun@1.8.1"): "6.12.57-1~bpo12+1_crun@1.8.1",
    ("path:/x/bzImage", "runc"): "bzImage-ad6d27_runc",
    ("6.1", "path:/opt/my_runc"): "6.1_runc-2a75a1",
}


@pytest.mark.parametrize("words", IDS)
def test_ids_are_stable(words: tuple[str, str]) -> None:
    """Records and CI name cells by these; a change of one is a break for users."""
    assert Cell(*words).id == IDS[words]


def test_no_two_cells_share_an_id() -> None:
    made = [Cell(kernel, runtime) for kernel in KERNELS for runtime in RUNTIMES]
    assert len({cell.id for cell in made}) == len(made)


def test_ids_fit_file_names() -> None:
    for kernel in KERNELS:
        assert SAFE_NAME.fullmatch(Cell(kernel, "runc").id) or kernel in ("../../etc",), Cell(kernel, "runc").id
        assert not re.search(r"[/\s]", Cell(kernel, "runc").id)


def test_the_default_cell() -> None:
    assert [cell.id for cell in cells([], [])] == ["6.1_runc"]


def test_every_combination_once_in_order() -> None:
    ids = [cell.id for cell in cells(["6.12", "6.1", "6.12"], ["crun", "runc"])]
    assert ids == ["6.12_crun", "6.12_runc", "6.1_crun", "6.1_runc"]


@pytest.mark.parametrize(
    "globs, ids",
    [
        ([], ["6.1_runc", "6.1_crun", "6.12_runc", "6.12_crun"]),
        (["6.1_*"], ["6.1_runc", "6.1_crun"]),
        (["*_crun", "6.12_*"], ["6.1_crun", "6.12_runc", "6.12_crun"]),
        (["6.1?_runc"], ["6.12_runc"]),
    ],
)
def test_globs(globs: list[str], ids: list[str]) -> None:
    assert [cell.id for cell in cells(["6.1", "6.12"], ["runc", "crun"], globs=globs)] == ids


def test_a_glob_that_matches_nothing_tells_what_there_is() -> None:
    with pytest.raises(BadInput, match=r"no cell matches 5\.\*; there are: 6.1_runc, 6.1_crun"):
        cells(["6.1"], ["runc", "crun"], globs=["5.*"])


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(BadInput, match="provider cloud: not known; one of: qemu"):
        cells([], [], "cloud")


@pytest.mark.parametrize("cell", [Cell(), Cell("path:/x", "crun@1.8"), Cell("6.1", "runc", "qemu")])
def test_options_ask_for_just_this_cell(cell: Cell) -> None:
    options = dict(zip(cell.options[::2], cell.options[1::2], strict=True))
    assert cells([options["--kernel"]], [options["--runtime"]]) == [cell]


# Ids that people type


@pytest.mark.parametrize(
    "cell_id, axes",
    [
        ("6.1_runc", {}),
        ("6.12.57_crun", {}),
        ("6.1_runc_lockdep", {"variants": ["lockdep"]}),
        ("6.1_runc_vagrant", {"provider": "vagrant"}),
        ("6.1_runc_cpu-max-atomic.base_ssh", {"series": ["patches/kernel/cpu-max-atomic"], "provider": "ssh"}),
        ("6.1_runc_cpu-max-atomic.base", {"series": ["patches/kernel/cpu-max-atomic"]}),
        (
            "6.1_runc_kasan_weight-crosstalk+weight-crosstalk-stack.off",
            {
                "variants": ["kasan"],
                "series": ["patches/kernel/weight-crosstalk+patches/kernel/weight-crosstalk-stack"],
            },
        ),
    ],
)
def test_an_id_gives_its_cell_back(cell_id: str, axes: dict[str, Any]) -> None:
    kernel, runtime = cell_id.split("_")[:2]
    named = axes_of(cell_id)
    assert named == {"kernels": [kernel], "runtimes": [runtime], "globs": [cell_id], **axes}
    assert [cell.id for cell in cells(**named)] == [cell_id] == [one_cell(cell_id).id]


@pytest.mark.parametrize("cell_id", ["nope", "6.1", "6.1_", "_runc", "6.1_runc_nope", "6.1_runc_no-such.base"])
def test_an_id_that_names_no_cell(cell_id: str) -> None:
    with pytest.raises(BadInput) as caught:
        axes_of(cell_id)
    assert cell_id in str(caught.value) and caught.value.mend
