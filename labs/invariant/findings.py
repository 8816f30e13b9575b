"""Findings: what is wrong with one register's reads, by kind, and the counterexample for each kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labs.invariant import witness
from labs.invariant.verdict import Step
from labs.invariant.zones import Clusters, Flags, Ints, attribute, conflicts, reverted_reads, stale_reads, succeeded
from labs.probe.history import READ, WRITE, Register

KINDS = ("torn", "foreign", "reverted", "stale", "inversion")  # the plainest first: it gives the counterexample


@dataclass(frozen=True)
class Findings:
    """One register judged. `wrong` holds, per kind, what violates: rows (torn, foreign), numbers of reads in
    `clusters` (reverted, stale), pairs of clusters (inversion)."""

    register: Register
    clusters: Clusters
    in_order: Clusters  # without the reads that are reverted or stale
    wrong: dict[str, Ints]

    def counterexample(self, kind: str) -> tuple[Step, ...]:
        """The smallest set of operations that shows a violation of this kind."""
        wrong = self.wrong[kind]
        if kind == "torn":
            return witness.torn(self.register, self.clusters, int(wrong[0]))
        if kind == "foreign":
            return witness.unwritten(self.register, self.clusters, int(wrong[0]))
        if kind == "reverted":
            return witness.reverted(self.register, self.clusters, wrong)
        if kind == "stale":
            return witness.stale(self.register, self.clusters, wrong)
        return witness.inversion(self.register, self.in_order, wrong[0])

    def first_seen(self) -> int | None:
        """When the first violating read had returned, ns; None without one. An inversion is seen at the end only."""
        ends = self.register.operations["end"]
        rows = np.concatenate([self.wrong["torn"], self.wrong["foreign"]])
        reads = np.concatenate([self.wrong["reverted"], self.wrong["stale"]])
        times = [*ends[rows], *ends[self.clusters.read_row[reads]]]
        if not times and len(self.wrong["inversion"]):
            times = [ends.max()]
        return int(min(times)) if times else None


def examine(register: Register) -> Findings:
    """Sort every read of one register into the kinds, each read into one at most. Raises as `attribute` does."""
    clusters = attribute(register)
    torn = np.isin(clusters.unwritten, torn_reads(register))
    reverted = reverted_reads(clusters)
    stale = stale_reads(clusters) & ~reverted
    in_order = clusters.keep(~(reverted | stale))
    wrong = {
        "torn": clusters.unwritten[torn],
        "foreign": clusters.unwritten[~torn],
        "reverted": np.flatnonzero(reverted),
        "stale": np.flatnonzero(stale),
        "inversion": conflicts(in_order),
    }
    return Findings(register, clusters, in_order, wrong)


def torn_reads(register: Register) -> Ints:
    """Rows of reads whose text is a mix: nobody wrote it, but each field is, at its place, in a text that was written.

    As "50000 200000" when only "50000 100000" and "70000 200000" were ever written.
    """
    operations = register.operations
    written = np.unique(operations["value"][succeeded(operations, WRITE)])
    texts = [register.initial, *(register.text(int(value)) for value in written)]
    shapes: dict[int, list[set[str]]] = {}
    for fields in (text.split() for text in texts):
        places = shapes.setdefault(len(fields), [set() for _ in fields])
        for place, part in zip(places, fields, strict=True):
            place.add(part)
    known = len(register.values)
    mixed = [known + i for i, text in enumerate(register.foreign) if _is_mix(text.split(), shapes)]
    reads: Flags = succeeded(operations, READ) & np.isin(operations["value"], mixed)
    return np.flatnonzero(reads)


def _is_mix(fields: list[str], shapes: dict[int, list[set[str]]]) -> bool:
    places = shapes.get(len(fields), [])
    return (
        len(fields) > 1 and len(places) > 0 and all(part in place for part, place in zip(fields, places, strict=True))
    )
