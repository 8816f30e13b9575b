"""Each row of the table of signatures has lines that it must find; lines of a healthy kernel are found by none."""

from __future__ import annotations

import pytest

from labs.console import begin_marker, scan
from labs.signatures import SIGNATURES

STAMPS = [
    "[    2.503916] ",
    "[   12.000000][  T123] ",
    "<4>[    1.000000] ",
    "\x1b[0mrunc: started[    0.123456][    C1] ",
    "",
]

# Lines that must give exactly this kind; at least one for each row of the table.
COMPLAINTS = [
    ("panic", "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)"),
    ("KASAN", "BUG: KASAN: use-after-free in css_release+0x1/0x2"),
    ("KCSAN", "BUG: KCSAN: data-race in a / b"),
    ("KMSAN", "BUG: KMSAN: uninit-value in cpu_max_write+0x1/0x2"),
    ("KFENCE", "BUG: KFENCE: out-of-bounds write in a+0x1/0x2"),
    ("UBSAN", "UBSAN: signed-integer-overflow in kernel/sched/core.c:10:2"),
    ("lockdep", "WARNING: possible recursive locking detected"),
    ("lockdep", "WARNING: possible circular locking dependency detected"),
    ("lockdep", "WARNING: possible irq lock inversion dependency detected"),
    ("lockdep", "WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected"),
    ("lockdep", "WARNING: inconsistent lock state"),
    ("lockdep", "WARNING: suspicious RCU usage"),
    ("lockdep", "WARNING: bad unlock balance detected!"),
    ("lockdep", "WARNING: held lock freed!"),
    ("lockdep", "WARNING: lock held when returning to user space!"),
    ("lockdep", "[ BUG: Invalid wait context ]"),
    ("lockdep", "BUG: sleeping function called from invalid context at mm/slab.h:1"),
    ("lockdep", "INFO: trying to register non-static key."),
    ("oops", "BUG: kernel NULL pointer dereference, address: 0000000000000008"),
    ("oops", "BUG: unable to handle page fault for address: ffffc90000003000"),
    ("oops", "BUG: TASK stack guard page was hit at ffffc90000003000 (stack is ..)"),
    ("oops", "Oops: Oops: 0002 [#1] PREEMPT SMP NOPTI"),
    ("oops", "Oops: double fault: 0000 [#1] PREEMPT SMP NOPTI"),
    ("oops", "general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1] SMP"),
    ("oops", "divide error: 0000 [#1] PREEMPT SMP NOPTI"),
    ("oops", "traps: PANIC: double fault, error_code: 0x0"),
    ("BUG", "kernel BUG at kernel/cgroup/cgroup.c:1234!"),
    ("BUG", "BUG: workqueue leaked lock or atomic: kworker/0:1/0x00000001/12"),
    ("soft lockup", "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [agent:90]"),
    ("soft lockup", "NMI watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [agent:90]"),
    ("hard lockup", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 1"),
    ("hard lockup", "watchdog: CPU0: Watchdog detected hard LOCKUP on cpu 0"),
    ("hard lockup", "watchdog: Watchdog detected hard LOCKUP on cpu 3"),
    ("workqueue lockup", "BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 34s!"),
    ("scheduling while atomic", "BUG: scheduling while atomic: insmod/89/0x00000002"),
    ("scheduling while atomic", "bad: scheduling from the idle thread!"),
    ("bad page", "BUG: Bad page state in process agent  pfn:07a3c"),
    ("bad page", "BUG: Bad rss-counter state mm:00000000a type:MM_ANONPAGES val:1"),
    ("slab corruption", "BUG kmalloc-96 (Tainted: G    B D   ): Right Redzone overwritten"),
    ("refcount", "refcount_t: underflow; use-after-free."),
    ("list corruption", "list_add corruption. next->prev should be prev (ffff), but was ffff. (next=ffff)."),
    ("WARN", "WARNING: CPU: 1 PID: 90 at kernel/sched/fair.c:5873 tg_throttle_down+0x1f6/0x220"),
    ("WARN", "WARNING: CPU: 1 PID: 90 at tg_throttle_down+0x1f6/0x220"),
    ("WARN", "WARNING: kernel/sched/fair.c:5873 at tg_throttle_down+0x1f6/0x220, CPU#1: kworker/1:2/90"),
    ("WARN", "WARNING: at tg_throttle_down+0x1f6/0x220, CPU#1: agent/90"),
    ("RCU stall", "rcu: INFO: rcu_preempt self-detected stall on CPU"),
    ("RCU stall", "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:"),
    ("RCU stall", "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: {"),
    ("RCU stall", "INFO: rcu_tasks detected stalls on tasks:"),
    ("RCU stall", "rcu: rcu_preempt kthread starved for 5250 jiffies! g-943 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0"),
    ("hung task", "INFO: task kworker/u4:1:61 blocked for more than 120 seconds."),
    ("hung task", "INFO: task agent:61 blocked in I/O wait for more than 120 seconds."),
    ("netdevice leak", "unregister_netdevice: waiting for eth0 to become free. Usage count = 1"),
    ("memory leak", "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)"),
    ("oom", "tail invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
    ("taint", "CPU: 1 PID: 90 Comm: insmod Tainted: G        W  OE      6.1.0-57-cloud-amd64 #1"),
]

# What the kernel (or a test through it) prints in good health.
HARMLESS = [
    "Kernel command line: console=ttyS0 panic=-1 oops=panic hung_task_panic=1 softlockup_panic=1",
    "Command line: panic=-1 BUG: WARNING: CPU: 0 PID: 1 at x",
    "---[ end Kernel panic - not syncing: sysrq triggered crash ]---",
    "pvpanic: registered panic notifier",
    "Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible!",
    "WARNING: Unprivileged eBPF is enabled with eIBRS+LFENCE mitigation and SMT, data leaks possible!",
    "WARNING: BIOS bug: CPU MTRRs don't cover all of memory, losing 16MB of RAM.",
    "WARNING: The mand mount option has been deprecated and",
    "WARNING: stack going in the wrong direction? at do_syscall_64+0x5d/0x90",
    "[Firmware Bug]: TSC_DEADLINE disabled due to Errata",
    'PCI: Using host bridge windows from ACPI; if necessary, use "pci=nocrs" and report a bug',
    "x86/cpu: debugging of BUG() is off",
    "EDAC MC: Ver: 3.0.0",
    "DEBUG: this is a name with BUG: in it",
    "traps: agent[143] general protection fault ip:401136 sp:7ffc0a1c error:0 in agent[401000+1000]",
    "agent[143]: segfault at 8 ip 0000000000401136 sp 00007ffc0a1c error 6 in agent[401000+1000]",
    "\tRCU CPU stall warnings timeout set to 3 (rcu_cpu_stall_timeout).",
    "INFO: NMI handler (nmi_cpu_backtrace_handler) took too long to run: 2.361 msecs",
    "INFO: task agent:90 is blocked on a mutex likely owned by task agent:91.",
    "rcu: INFO: Stall ended before state dump start",
    "sysrq: Show Blocked State",
    "clocksource: Watchdog remote CPU 1 read timed out",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "workqueue: psi_avgs_work hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
    "trouble: loading out-of-tree module taints kernel.",
    "CPU: 0 PID: 1 Comm: init Not tainted 6.1.0-57-cloud-amd64 #1  Debian 6.1.192-3",
    "Memory cgroup out of memory: Killed process 92 (tail) total-vm:20000kB",
    "systemd[1]: BUG: unit file is odd",
]


def kinds(text: str) -> list[str]:
    return [event.kind for event in scan(text)]


@pytest.mark.parametrize("kind, line", COMPLAINTS)
@pytest.mark.parametrize("stamp", STAMPS)
def test_complaint(kind: str, line: str, stamp: str) -> None:
    assert kinds(f"{stamp}{line}\r\n") == [kind]


def test_every_row_of_the_table_has_a_complaint() -> None:
    assert {row.kind for row in SIGNATURES} == {kind for kind, _ in COMPLAINTS}


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless(line: str) -> None:
    assert scan(f"[    1.234567] {line}\n") == []


@pytest.mark.parametrize("kind, line", COMPLAINTS)
def test_words_of_userspace_and_of_case_names_are_no_complaint(kind: str, line: str) -> None:
    log = f"[    0.000000] Linux version 6.1\n{line}\n[    2.000000] {begin_marker(f'test[{line}]')}\n"
    assert scan(log) == []
