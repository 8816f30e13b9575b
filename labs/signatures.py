"""Signatures: the ways in which a kernel complains on its console, as a table; and those of a faulty emulator."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Kinds that are the kernel's news, not its complaint. KCSAN reports plain accesses that race, thousands of which are
# meant: evidence for the verdict on the files that the functions serve, and none by itself.
INFORMATION = ("oom", "taint", "KCSAN")
ANY = "any"  # in Signature.follows: whatever splat is open

CUT_HERE = "[ cut here ]"
END_TRACE = "---[ end "
STACK_END = "</TASK>"
RULER = "=" * 20  # frames the reports of the sanitizers


@dataclass(frozen=True)
class Signature:
    """One way in which a kernel complains. `pattern` must match where the message begins, and captures nothing."""

    kind: str
    pattern: str
    fatal: bool = False  # the guest cannot be trusted to go on
    follows: tuple[str, ...] = ()  # open splats that print this line as a matter of course: no event of its own
    closing: tuple[str, ...] = (END_TRACE, STACK_END)  # what ends the report; the first that is found decides


# First match wins. Formats read from the strings of Debian's vmlinux 6.1.192, 6.12.107, 7.0.4 and 7.2.12, and from
# kernel source where those are built without the feature (lockdep, the sanitizers).
SIGNATURES: tuple[Signature, ...] = (
    Signature("panic", r"Kernel panic - not syncing: ", fatal=True),
    Signature("KASAN", r"BUG: KASAN: ", closing=(RULER,)),
    Signature("KCSAN", r"BUG: KCSAN: ", closing=(RULER,)),
    Signature("KMSAN", r"BUG: KMSAN: ", closing=(RULER,)),
    Signature("KFENCE", r"BUG: KFENCE: ", closing=(RULER,)),
    Signature("UBSAN", r"UBSAN: [\w-]+ in ", closing=(END_TRACE, RULER)),
    Signature(
        "lockdep",
        r"(?:WARNING: |\[ BUG: |BUG: )(?:"
        r"possible (?:recursive locking|circular locking dependency|irq lock inversion dependency) detected"
        r"|\S+-safe -> \S+-unsafe lock order detected|inconsistent lock state|suspicious RCU usage"
        r"|bad (?:unlock|contention) balance detected|held lock freed|lock held (?:when|at)|Nested lock was not taken"
        r"|Invalid wait context|sleeping function called from invalid context|\S+ still has locks held)"
        r"|INFO: trying to register non-static key",
    ),
    Signature("oops", r"BUG: (?:kernel NULL pointer|unable to handle|.*stack guard page was hit)", fatal=True),
    # 6.12 and later write "Oops: invalid opcode: 0000 [#1]", 6.1 the trap alone: "invalid opcode: 0000 [#1]".
    # Userspace's own faults read "traps: prog[12] general protection fault ip:" and do not begin so.
    Signature(
        "oops",
        r"Oops: |general protection fault|[a-z][a-z ]*: [0-9a-f]{4} \[#\d+\]|(?:traps: )?PANIC: double fault"
        r"|kernel tried to execute NX-protected page",
        fatal=True,
        follows=("oops", "BUG", "list corruption"),
    ),
    Signature("BUG", r"kernel BUG at ", fatal=True, follows=("list corruption", "slab corruption")),
    Signature("soft lockup", r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#", fatal=True),
    # "NMI watchdog: " in 6.1, "watchdog: " in 6.12, "watchdog: CPU1: " in 7.x.
    Signature("hard lockup", r"(?:NMI )?watchdog: (?:CPU\d+: )?Watchdog detected hard LOCKUP", fatal=True),
    Signature("workqueue lockup", r"BUG: workqueue lockup - pool"),
    Signature("scheduling while atomic", r"BUG: scheduling while atomic: |bad: scheduling from the idle thread"),
    Signature("bad page", r"BUG: Bad (?:page|rss-counter)|BUG: non-zero pgtables_bytes"),
    Signature(
        "slab corruption", r"BUG \S+ \((?:Not tainted|Tainted: [^)]*)\): ", fatal=True, closing=("FIX ", STACK_END)
    ),
    # WARN() prints its message between "cut here" and the WARNING line, and that message is what names the fault.
    Signature("refcount", r"refcount_t: "),
    Signature("list corruption", r"list_(?:add|del) corruption", fatal=True),
    # Second form in 7.x: "WARNING: kernel/x.c:12 at func+0x1/0x2, CPU#1: comm/90". A WARNING without a place or a
    # CPU is advice ("WARNING: Unprivileged eBPF is enabled", "WARNING: BIOS bug"), not a splat.
    Signature(
        "WARN",
        r"WARNING: CPU: \d+ PID: \d+ at |WARNING: (?:\S+:\d+ )?at \S.*, CPU#\d+: ",
        follows=("refcount", "list corruption"),
    ),
    Signature("RCU stall", r"(?:rcu: )?INFO: \S+ (?:self-detected stall|detected (?:expedited )?stalls)"),
    Signature("RCU stall", r"rcu: \S+ kthread (?:starved for|timer wakeup didn't happen)", follows=("RCU stall",)),
    # "blocked%s for more than" in 7.2, as "blocked in I/O wait for more than".
    Signature("hung task", r"INFO: task .+ blocked\b.* for more than \d+ seconds"),
    Signature("netdevice leak", r"unregister_netdevice: waiting for \S+ to become free"),
    Signature("memory leak", r"kmemleak: \d+ new suspected memory leaks"),
    Signature("BUG", r"BUG: "),
    Signature("oom", r".+ invoked oom-killer: "),
    Signature("taint", r".*\bTainted: [GP]", follows=(ANY,)),
)
ANY_SIGNATURE = re.compile("|".join(f"(?P<row{row}>{each.pattern})" for row, each in enumerate(SIGNATURES)))

# First row: QEMU 7.2's TCG delivers a debug exception with nonsense flags right after cmpxchg16b, which SLUB's fast
# path uses: seen 3 times in 3 on Debian 6.12.107 with `-cpu max`, never in some 18 boots of 6.12 to 7.3 with
# `-cpu max,-cx16`. Every text must be in the context, the QEMU machine and the allocator's frame too: the bare WARN
# can be a true one.
# Second row: code is patched live through an int3 that other CPUs may meet (text_poke_bp in the kernel's
# arch/x86/kernel/alternative.c). A stale translation raises it after it was taken away again: the byte before the one
# that "Code:" marks is cc no more (seen once, in a boot of 6.12.100 on a busy host).
EMULATOR_FAULTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "WARN",
        "QEMU's emulated cmpxchg16b raised a false debug exception; use -cpu max,-cx16",
        (r"arch/x86/kernel/traps\.c:\d+", r"exc_debug_kernel\+", r"Hardware name: QEMU", r"kmalloc|kmem_cache|_slab"),
    ),
    (
        "oops",
        "QEMU ran a stale translation of code that the kernel had patched: the int3 is no longer there",
        (r"Oops: int3", r"Hardware name: QEMU", r"Code:(?: [0-9a-f]{2})* (?!cc)[0-9a-f]{2} <[0-9a-f]{2}>"),
    ),
)
