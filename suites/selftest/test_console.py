"""Saved consoles give the complaints they hold and no other.

Logs under data/consoles named after a Debian kernel's own words (boot-clean, panic, oops, bug, warn, refcount,
list-corruption, scheduling, stall, lockup of 6.1, hung-task, oom, sysrq) were recorded from QEMU guests, most with a
module that plants the fault; those of kernels built with lockdep or sanitizers follow the formats in kernel source.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.console import (
    ConsoleWatch,
    Event,
    begin_marker,
    end_marker,
    kernel_lines,
    known_emulator_fault,
    scan,
    slice_of,
    symbolize,
)
from labs.invariant.kernel_health import quiet_kernel

CONSOLES = Path(__file__).parent / "data" / "consoles"
EXPECTED: dict[str, list[str]] = {
    "bad-page": ["bad page"],
    "boot-clean-6.1": [],
    "boot-clean-7.2": [],
    "bug": ["BUG"],
    "emulator-debug-exception": ["WARN"],
    "emulator-double-fault": ["WARN", "oops", "panic"],
    "emulator-stale-int3": ["oops"],
    "emulator-then-kasan": ["WARN", "KASAN"],
    "hard-lockup": ["hard lockup", "panic"],
    "hard-lockup-7.2": ["hard lockup"],
    "hung-task": ["hung task"] * 3,
    "hung-task-then-panic": ["hung task", "panic"],
    "interleaved": ["WARN", "hung task"],
    "kasan": ["KASAN"],
    "kcsan": ["KCSAN"],
    "kfence": ["KFENCE"],
    "list-corruption": ["list corruption"],
    "lockdep-circular": ["lockdep"],
    "lockdep-recursive": ["lockdep"],
    "netdevice-leak": ["netdevice leak"] * 2,
    "oom-kill": ["oom"],
    "oops-gpf": ["oops"],
    "oops-null": ["oops"],
    "oops-then-panic": ["oops", "panic"],
    "panic-init-exit": ["panic"],
    "panic-sysrq": ["panic"],
    "rcu-stall": ["RCU stall"] * 2,
    "rcu-suspicious": ["lockdep"],
    "refcount": ["refcount"],
    "scheduling-while-atomic": ["scheduling while atomic", "WARN"] * 2,
    "slab-corruption": ["slab corruption"],
    "sleeping-in-atomic": ["lockdep"],
    "soft-lockup": ["RCU stall", "soft lockup", "RCU stall"],
    "sysrq-l-backtraces": [],
    "sysrq-t-tasks": [],
    "ubsan": ["UBSAN"],
    "ubsan-6.12": ["UBSAN"],
    "userspace-noise": [],
    "warn": ["WARN"] * 2,
    "warn-7.2": ["WARN"],
    "warn-then-panic": ["WARN", "panic"],
    "workqueue-lockup": ["workqueue lockup"],
}


def saved(name: str) -> str:
    return (CONSOLES / f"{name}.log").read_bytes().decode(errors="replace")


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_each_saved_console_is_expected() -> None:
    assert sorted(EXPECTED) == sorted(path.stem for path in CONSOLES.glob("*.log"))


@pytest.mark.parametrize("name", EXPECTED)
def test_saved_console(name: str) -> None:
    events = scan(saved(name))
    assert kinds(events) == EXPECTED[name]
    for event in events:
        assert event.text in event.context
        assert "cgroup-lab" not in event.context


def test_fatal_is_what_ends_a_guest() -> None:
    fatal = {event.kind: event.fatal for name in EXPECTED for event in scan(saved(name))}
    assert {kind for kind, is_fatal in fatal.items() if is_fatal} == {
        "panic", "oops", "BUG", "soft lockup", "hard lockup", "list corruption", "slab corruption",
    }  # fmt: skip


def test_context_is_the_whole_splat_and_no_more() -> None:
    warn, panic = scan(saved("warn-then-panic"))
    assert "cut here" in warn.context.splitlines()[0]
    assert "Call Trace" in warn.context and "do_warn_on+0x5" in warn.context
    assert panic.line_number > warn.line_number and "panic_on_warn" in panic.text
    oops, _ = scan(saved("oops-then-panic"))
    assert "end trace" in oops.context.splitlines()[-1]
    (kasan,) = scan(saved("kasan"))
    assert "Freed by task" in kasan.context and kasan.context.splitlines()[-1].endswith("=" * 60)
    (alone, _) = scan(saved("hung-task"))[:2]
    assert alone.context.count("blocked for more than") == 1
    flood = "[    1.000000] BUG: odd\n" + "[    1.000000] more\n" * 500
    assert len(scan(flood)[0].context.splitlines()) == 60


def printed(*messages: str) -> str:
    return "".join(f"[    1.000000] {message}\n" for message in messages)


@pytest.mark.parametrize(
    "name, last",
    [("ubsan", "=" * 80), ("lockdep-circular", "</TASK>"), ("slab-corruption", "6df=0x6b"), ("warn-7.2", "000 ]---")],
)
def test_context_ends_with_its_report(name: str, last: str) -> None:
    (event,) = scan(saved(name) + printed(*["calm"] * 70, "=" * 80))
    assert event.context.endswith(last)


def test_context_stops_at_the_next_splat_and_at_a_marker() -> None:
    hung, cut, warn = (
        "INFO: task a:1 blocked for more than 9 seconds.",
        "---[ cut here ]---",
        "WARNING: CPU: 1 PID: 2 at f",
    )
    events = scan(printed(hung, "why", cut, warn, "---[ end trace 0 ]---", hung, "why", begin_marker("x"), " </TASK>"))
    first, _, last = [event.context for event in events]
    assert first == printed(hung, "why").strip() and last == first
    assert "kernel BUG at" in scan(saved("list-corruption"))[0].context


def test_what_continues_a_splat_is_no_new_one() -> None:
    stall, more = "rcu: INFO: rcu_preempt self-detected stall on CPU", "rcu: rcu_preempt kthread starved for 9 jiffies!"
    assert kinds(scan(printed(stall, more))) == ["RCU stall"]
    assert kinds(scan(printed(stall, *["calm"] * 60, more))) == ["RCU stall"] * 2
    assert kinds(scan(printed(stall, begin_marker("x"), more))) == ["RCU stall"] * 2
    assert kinds(scan(printed("Oops: 1 [#1]", "Oops: 1 [#1]"))) == ["oops"]
    assert kinds(scan(printed("Oops: 1 [#1]", "---[ end trace 0 ]---", "Oops: 1 [#2]"))) == ["oops"] * 2


def test_a_second_warning_in_one_splats_reach_is_told() -> None:
    assert kinds(scan(saved("refcount") + saved("warn-7.2"))) == ["refcount", "WARN"]
    assert kinds(scan(saved("warn-7.2") * 3)) == ["WARN"] * 3


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("name", ["soft-lockup", "interleaved", "emulator-double-fault"])
def test_watch_sees_the_same_as_a_scan(tmp_path: Path, name: str, size: int) -> None:
    log = tmp_path / "console.log"
    watch = ConsoleWatch(log)
    assert watch.poll() == [] and watch.text == ""
    data, seen = (CONSOLES / f"{name}.log").read_bytes(), []
    data = data[: min(len(data), size * 2500)]
    with log.open("wb", buffering=0) as out:
        for at in range(0, len(data), size):
            out.write(data[at : at + size])
            seen += watch.poll()
    whole = scan(data.decode(errors="replace"))
    assert [(event.kind, event.line_number) for event in seen] == [(event.kind, event.line_number) for event in whole]
    assert watch.events() == whole
    assert watch.kernel_lines == kernel_lines(data.decode(errors="replace"))
    assert watch.poll() == []


def test_watch_reads_characters_cut_in_two_and_bytes_that_are_none(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    watch, found = ConsoleWatch(log), []
    for part in (b"[    1.000000] BUG: gr\xc3", b"\xbc\xff\x00\n", b"[    1.000001] half"):
        with log.open("ab") as out:
            out.write(part)
        found += watch.poll()
    assert [event.text for event in found] == ["BUG: grü�"]
    assert watch.tail(1) == "[    1.000001] half"


def test_watch_starts_again_when_the_log_does(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_text("[    1.000000] BUG: first life\n[    1.000001] more\n")
    watch = ConsoleWatch(log)
    assert len(watch.poll()) == 1
    log.write_text("[    1.000000] BUG: second\n")
    assert [event.text for event in watch.poll()] == ["BUG: second"]
    log.unlink()
    assert watch.poll() == [] and "second" in watch.text


def test_a_watch_that_forgets_begins_at_what_comes_next(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_text("[    1.000000] BUG: first life\n[    1.000001] Kernel panic - not syncing: x\n[    1.2")
    watch = ConsoleWatch(log)
    assert len(watch.poll()) == 2 and watch.fatal
    with log.open("a") as out:
        out.write("00000] BUG: not polled yet\n")
    watch.forget()
    assert (watch.poll(), watch.events(), watch.text, watch.fatal, watch.kernel_lines) == ([], [], "", False, 0)
    with log.open("a") as out:
        out.write("[    1.000000] BUG: second\n")
    assert [event.text for event in watch.poll()] == ["BUG: second"]
    assert "first life" in log.read_text()


def test_unfinished_last_line_is_in_events_but_not_yet_polled(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_text("[    1.000000] Kernel panic - not syncing: x")
    watch = ConsoleWatch(log)
    assert watch.poll() == []
    assert kinds(watch.events()) == ["panic"]


def test_slice_of_a_case() -> None:
    case = "suites/x.py::test_y[6.1/runc-panic: [1.2]]"
    other = "suites/x.py::test_y"

    def kernel(line: str) -> str:
        return f"[    1.000000] {line}\r"

    before, inside, after = (kernel(f"BUG: {word}") for word in ("before", "inside", "after"))
    log = [before, kernel(begin_marker(case)), inside, kernel(end_marker(case)), after, kernel(begin_marker(other))]
    text = "\n".join(log)
    assert [event.text for event in scan(slice_of(text, case))] == ["BUG: inside"]
    assert kernel_lines(slice_of(text, case)) == 3
    assert slice_of(text, other) == f"[    1.000000] {begin_marker(other)}"
    assert slice_of(text, "never") == "" and slice_of("", case) == ""
    ended = "\n".join(log[:3])  # the guest died inside
    assert kinds(scan(slice_of(ended + "\n" + kernel("Kernel panic - not syncing: x"), case))) == ["BUG", "panic"]
    again = text + "\n" + "\n".join([kernel(begin_marker(case)), kernel(end_marker(case))])
    assert scan(slice_of(again, case)) == []


def test_symbolize(tmp_path: Path) -> None:
    system_map = tmp_path / "System.map"
    system_map.write_text(
        "0000000000000000 A fixed_percpu_data\nffffffff81000000 T _text\nffffffff8112ab00 t schedule\n"
        "ffffffff8112ac00 T __schedule\nffffffff82000000 D init_task\nffffffff83000000 B _end\n"
        "ffffffffc0200000 t do_warn\t[trouble]\n"
    )
    raw = "RIP: 0010:0xffffffff8112abcd\n [<ffffffff8112abcd>] 0xffffffff8112abcd\n ? ffffffff8112ac00 end"
    assert symbolize(raw, system_map) == "RIP: 0010:schedule+0xcd\n schedule+0xcd\n ? __schedule+0x0 end"
    kept = (
        "[<ffffffff8112abcd>] schedule+0xcd/0x100",
        "0xffffffff82000010",
        "0xffffffffc0206000",
        "ffffffff80000000",
        "0xffffffff8112abcd00",
        "R11: 00000000ffffffff",
    )
    for line in kept:
        assert symbolize(line, str(system_map)) == line
    stub = tmp_path / "stub"
    stub.write_text("ffffffffffffffff B The real System.map is in the linux-image-<version>-dbg package\n")
    assert symbolize(raw, stub) == raw
    odd = tmp_path / "odd"
    odd.write_text("no address T x\n\n0x1 T y\nffffffff8112ab00 t schedule\nffffffff83000000 B _end\n")
    assert symbolize(raw, odd).startswith("RIP: 0010:schedule+0xcd"), "a hostile build's own words are passed over"


@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith("emulator")])
def test_no_true_splat_is_the_emulators(name: str) -> None:
    assert not any(known_emulator_fault(event) for event in scan(saved(name)))


def test_emulator_fault_needs_its_whole_signature() -> None:
    text = saved("emulator-debug-exception")
    assert "cx16" in known_emulator_fault(scan(text)[0])
    for word in ("exc_debug_kernel", "arch/x86/kernel/traps.c", "QEMU", "__kmalloc"):
        assert not known_emulator_fault(scan(text.replace(word, "other"))[0])


@pytest.mark.parametrize(
    "name, outcome",
    [
        *((name, "fail") for name in EXPECTED if EXPECTED[name] and not name.startswith(("emulator", "oom", "kcsan"))),
        *((name, "pass") for name in EXPECTED if not EXPECTED[name]),
        ("oom-kill", "pass"),
        ("kcsan", "pass"),
        ("emulator-debug-exception", "error"),
        ("emulator-stale-int3", "error"),
        ("emulator-double-fault", "error"),
        ("emulator-then-kasan", "fail"),
    ],
)
def test_quiet_kernel(name: str, outcome: str) -> None:
    text = saved(name)
    verdict = quiet_kernel(scan(text), seconds=4.0, lines=kernel_lines(text))
    assert verdict.outcome == outcome, verdict.reason
    assert verdict.looked_at == {"lines": kernel_lines(text), "seconds": 4.0}
    if outcome == "fail":
        own = [event for event in scan(text) if event.defect and not known_emulator_fault(event)]
        assert own[0].text in verdict.reason and own[0].context in verdict.evidence


def test_quiet_kernel_that_was_not_heard_is_no_pass() -> None:
    assert kernel_lines("SeaBIOS (version 1.16.2)\r\nBooting from ROM...\r\n") == 0
    verdict = quiet_kernel([], seconds=4.0, lines=0)
    assert (verdict.outcome, verdict.reason) == ("inconclusive", "the scan saw no console line")


def test_defect_before_the_emulators_fault_is_the_kernels_own() -> None:
    text = saved("oops-null") + saved("emulator-debug-exception")
    assert quiet_kernel(scan(text), seconds=1.0, lines=1).outcome == "fail"


def test_an_int3_that_is_there_is_the_kernels_own() -> None:
    text = saved("emulator-stale-int3")
    assert known_emulator_fault(scan(text)[0])
    assert not known_emulator_fault(scan(text.replace("53 66 <90>", "53 cc <90>"))[0])


def test_races_are_evidence_with_the_functions_that_they_name() -> None:
    text = (CONSOLES / "kcsan.log").read_text()
    (event,) = scan(text)
    verdict = quiet_kernel([event, event], seconds=4.0, lines=kernel_lines(text))
    pair = event.text.removeprefix("BUG: KCSAN: ")
    assert verdict.outcome == "pass" and verdict.figures == {f"KCSAN {pair}": 2.0}
    assert " / " in pair and pair in verdict.evidence
