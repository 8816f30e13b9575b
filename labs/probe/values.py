"""What may be written to each cgroup file, and what a read then says or which error it must give.

Sources: the range checks of cpu_weight_write_u64 and tg_set_cfs_bandwidth (kernel/sched/core.c), ioc_weight_write
(block/blk-iocost.c), read in 6.1.192, 6.12.117 and 7.2.13.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass

VALUES = 2000  # accepted values a file: the most after which one returns, small enough for the guest's caches
PERIODS = (50_000, 100_000, 200_000)  # us
MAX_BURST = 40_000  # us; below every quota that is written, so that the two files never refuse each other's values


@dataclass(frozen=True)
class Value:
    """`write` is the text written, `read` the text that must come back, `errno` 0 or the refusal to expect."""

    write: str
    read: str
    errno: int = 0


def _weights(rng: random.Random) -> list[Value]:
    return [Value(str(n), str(n)) for n in rng.sample(range(1, 10_001), VALUES)]


def _default_weights(rng: random.Random) -> list[Value]:
    return [Value(f"default {n}", f"default {n}") for n in rng.sample(range(1, 10_001), VALUES)]


def _quotas(rng: random.Random) -> list[Value]:
    texts = [f"{quota} {rng.choice(PERIODS)}" for quota in rng.sample(range(MAX_BURST, 400_000), VALUES)]
    return [Value(text, text) for text in texts]


def _bursts(rng: random.Random) -> list[Value]:
    return [Value(str(n), str(n)) for n in rng.sample(range(1, MAX_BURST), VALUES)]


def _refused(code: int, *texts: str) -> list[Value]:
    return [Value(text, text, code) for text in texts]


@dataclass(frozen=True)
class File:
    """A file that holds one value: how to draw accepted values, and texts that it must refuse."""

    name: str
    draw: Callable[[random.Random], list[Value]]
    refused: list[Value]


FILES = {
    file.name: file
    for file in (
        File("cpu.weight", _weights, _refused(errno.ERANGE, "0", "10001", "70369281052672")),
        File("io.weight", _default_weights, _refused(errno.EINVAL, "default 0", "default 10001", "0")),
        File("cpu.max", _quotas, _refused(errno.EINVAL, "0 100000", "foo", "50000 999", "50000 1000001")),
        File("cpu.max.burst", _bursts, _refused(errno.EINVAL, "500000", "1000000")),
    )
}

# What a file holds before a probe begins, where the default would not do: at "max" no burst is refused.
START = {"cpu.max": "400000 100000"}

# Files that are tested together: one pair that shares nothing, and one that is coupled.
PAIRS = {"weights": ("cpu.weight", "io.weight"), "bandwidth": ("cpu.max", "cpu.max.burst")}


def table(name: str, seed: int) -> list[Value]:
    """Values of a file in a random but repeatable order, the refused ones spread among them (about 2 in 100).

    Every text is there once, apart from refused ones, which may return: nothing is ever read back from them.
    """
    file = FILES[name]
    rng = random.Random(f"{seed} {name}")
    values = file.draw(rng)
    refused = [file.refused[i % len(file.refused)] for i in range(len(values) // 50)]
    mixed = values + refused
    rng.shuffle(mixed)
    return mixed
