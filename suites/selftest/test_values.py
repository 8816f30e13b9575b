"""Values for the probes: unique, repeatable, disjoint, and told apart by a read."""

from __future__ import annotations

import errno

import pytest

from labs.probe.values import FILES, MAX_BURST, PERIODS, VALUES, table

every_file = pytest.mark.parametrize("name", FILES)


@every_file
def test_the_same_seed_gives_the_same_table(name: str) -> None:
    assert table(name, 7) == table(name, 7)
    assert table(name, 7) != table(name, 8)


@every_file
def test_accepted_texts_are_there_once_and_read_back_alone(name: str) -> None:
    accepted = [value for value in table(name, 7) if not value.errno]
    assert len(accepted) == VALUES
    assert len({value.write for value in accepted}) == len({value.read for value in accepted}) == VALUES


@every_file
def test_refused_texts_are_among_them_and_never_read_back(name: str) -> None:
    values = table(name, 7)
    refused = [value for value in values if value.errno]
    assert len(refused) == VALUES // 50
    assert {value.write for value in refused} == {value.write for value in FILES[name].refused}
    assert not {value.read for value in refused} & {value.read for value in values if not value.errno}
    places = [at for at, value in enumerate(values) if value.errno]
    assert places[0] < len(values) // 4 and places[-1] > 3 * len(values) // 4, "spread, so that every writer gets some"


@every_file
def test_texts_fit_the_agent(name: str) -> None:
    """Its tables hold one value a line, split at a tab, of less than 128 bytes."""
    for value in table(name, 7):
        assert max(len(value.write), len(value.read)) < 128 and not set("\t\n") & set(value.write + value.read)
        assert value.read == value.read.strip() != ""


def test_values_lie_where_the_kernel_takes_them() -> None:
    for name, low, high in [("cpu.weight", 1, 10_000), ("cpu.max.burst", 1, MAX_BURST - 1)]:
        assert all(low <= int(value.write) <= high for value in table(name, 7) if not value.errno)
    for value in table("io.weight", 7):
        if not value.errno:
            assert value.write.startswith("default ") and 1 <= int(value.write.split()[1]) <= 10_000


def test_quota_and_burst_never_refuse_each_other() -> None:
    largest = max(int(value.write) for value in table("cpu.max.burst", 7) if not value.errno)
    for value in table("cpu.max", 7):
        if not value.errno:
            quota, period = map(int, value.write.split())
            assert period in PERIODS and quota >= MAX_BURST > largest


def test_refusals_are_those_of_the_kernel() -> None:
    codes = {name: {value.errno for value in file.refused} for name, file in FILES.items()}
    assert codes["cpu.weight"] == {errno.ERANGE}
    assert codes["io.weight"] == codes["cpu.max"] == codes["cpu.max.burst"] == {errno.EINVAL}


def test_tables_of_two_files_are_drawn_apart() -> None:
    weights = [value.write for value in table("cpu.weight", 7)]
    assert weights != [value.write.removeprefix("default ") for value in table("io.weight", 7)]
