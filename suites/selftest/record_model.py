"""Record what real kernels say of random sequences, for test_model.py: PYTHONPATH=. python THIS 6.1 7.3"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from labs import prepare
from labs.matrix import cells
from labs.model.act import Ran
from labs.model.carry import ROOT, kernel_of, run_cases
from labs.model.draw import batches
from labs.model.fit import mask
from labs.model.saved import dump
from labs.probe.promises import root_group
from labs.source.debian import Archive
from labs.store import Store
from labs.version import upstream_of

DATA = Path(__file__).parent / "data/model"
SEED, COUNT, TIMES = 20, 400, 2


def record(asked: str) -> None:
    """Sequential and concurrent sequences of one kernel, with the facts that the model needs."""
    store = Store.of_user()
    archive = Archive(store)
    (cell,) = cells([asked], [], "qemu", [])
    artifacts = prepare.prepare(prepare.find(cell, archive), store, archive)
    with prepare.boot(artifacts) as booted, root_group(booted.guest, ROOT) as files:
        kernel = kernel_of(booted.guest, upstream_of(artifacts.found.kernel.version), files)
        cases = [
            case
            for concurrent in (False, True)
            for batch in batches(SEED, COUNT, kernel, concurrent=concurrent, mask=mask)
            for case in batch
        ]
        rans = telling(run_cases(booted.guest, cases))
    facts = {"release": booted.facts["release"], "version": kernel.version}
    facts |= {name: sorted(getattr(kernel, name)) for name in ("offered", "known", "files")}
    DATA.mkdir(exist_ok=True)
    (DATA / f"{asked}.jsonl").write_text(json.dumps(facts) + "\n" + dump(rans))


def telling(rans: list[Ran]) -> list[Ran]:
    """Those that show an act, a file and an error together that fewer than TIMES others have shown."""
    shown: Counter[tuple[str, ...]] = Counter()
    kept = []
    for ran in rans:
        keys = {(act.name, act.file, seen.error, str(bool(ran.lanes))) for act, seen in ran}
        if any(shown[key] < TIMES for key in keys):
            shown.update(keys)
            kept.append(ran)
    return kept


if __name__ == "__main__":
    for name in sys.argv[1:]:
        record(name)
