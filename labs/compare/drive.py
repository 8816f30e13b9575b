"""Interleaved rounds over fresh guests, until there is a decision. A disturbed round is made again, and counted."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from labs.compare.boots import Boot
from labs.compare.judge import Comparison
from labs.compare.record import Asked, BootLine, CompareRecord, whole
from labs.errors import GuestLost, KernelFailed, LabError
from labs.store import file_digest

log = logging.getLogger("labs")

ATTEMPTS = 3  # of one round
Measured = Callable[[str, int, CompareRecord], tuple[Boot, str]]  # side, seed -> what it measured, its folder


@dataclass(frozen=True)
class Progress:
    """Where a record stands: the next round, and how often it was tried."""

    round: int
    attempt: int


def order(number: int) -> str:
    """Sides in the order of their boots: AB, BA, AB, ... so that a drift of the host weighs on both alike."""
    return "AB" if number % 2 else "BA"


def seed_of(asked: Asked, number: int) -> int:
    """Both boots of a round have one seed: what a seed decides is equal on both sides, and another in every round."""
    return random.Random(f"{asked.seed}/{number}").randrange(1, 1 << 31)


def progress(record: CompareRecord) -> Progress:
    """The round to do next: the first that is not whole."""
    boots = record.boots()
    number = 1
    while True:
        lines = [line for line in boots if line.round == number]
        attempt = max((line.attempt for line in lines), default=0)
        if not whole({line.side: line for line in lines if line.attempt == attempt}):
            return Progress(number, attempt + 1)
        number += 1


def run(
    record: CompareRecord, measured: Measured, whole_run: bool = False, told: Callable[[str], None] = log.info
) -> Comparison:
    """Go on until the comparison is done, or with `whole_run` until all rounds are.

    KernelFailed when a kernel fails or complains, LabError when a round was disturbed, or its guest lost, ATTEMPTS
    times.
    """
    asked = record.asked()
    result = record.comparison()
    while not result.done or (whole_run and progress(record).round <= asked.boots):
        at = progress(record)
        if at.attempt > ATTEMPTS:
            last = next(line for line in reversed(record.boots()) if line.round == at.round and line.trouble)
            raise LabError(f"round {at.round} was disturbed {ATTEMPTS} times: {last.trouble}", mend="free the host")
        pair = [_boot(record, asked, at, side, measured) for side in order(at.round)]
        trouble = next((line.trouble for line in pair if line.trouble), "")
        result = record.comparison()
        told(f"round {at.round} of at most {asked.boots}: {trouble or result.word}")
    record.decide(result)
    return result


def _boot(record: CompareRecord, asked: Asked, at: Progress, side: str, measured: Measured) -> BootLine:
    seed, began = seed_of(asked, at.round), time.monotonic()
    try:
        boot, folder = measured(side, seed, record)
    except GuestLost as error:
        line = BootLine(at.round, side, at.attempt, seed, "", "", _since(began), f"guest lost: {error}", {})
    except KernelFailed as error:  # never a disturbance that another boot makes good: it stays on record
        record.add(BootLine(at.round, side, at.attempt, seed, "", "", _since(began), str(error), {}, failed=True))
        raise
    else:
        path = record.path / "boots" / folder / f"{side}.npz"
        boot.samples.save(path)
        relative, digest = os.path.relpath(path, record.path), file_digest(path)
        line = BootLine(at.round, side, at.attempt, seed, relative, digest, _since(began), boot.trouble, boot.host)
    record.add(line)
    return line


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)
