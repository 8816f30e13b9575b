"""Where foreign build systems run: no network, the host read-only and only its tools, bounded memory and time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.command import end_group, spawn
from labs.deadline import Deadline
from labs.errors import DeadlineExpired

log = logging.getLogger("labs")

MEMORY_BYTES = 6 << 30  # of one process; a linker of a debug kernel takes 2
FILE_BYTES = 8 << 30  # of one file, the log too
# What a compiler needs of the host: programs and libraries; no home, no /etc but the links between alternatives.
HOST = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")
PROGRESS_SECONDS = 15
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Sandbox:
    """Folders as the build sees them: name inside -> folder outside. `root` replaces the host's programs."""

    read: Mapping[str, Path]
    write: Mapping[str, Path]
    root: Path | None = None

    def argv(self, command: Sequence[str], cwd: str, env: Mapping[str, str]) -> list[str]:
        """bubblewrap's command line."""
        argv = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
        if self.root:
            argv += ["--ro-bind", str(self.root), "/"]
        else:
            for place in HOST:
                argv += ["--ro-bind-try", place, place]
        argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        for flag, folders in (("--ro-bind", self.read), ("--bind", self.write)):
            for inside, outside in folders.items():
                argv += [flag, str(outside), inside]
        for name, value in {
            "PATH": "/usr/lib/ccache:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/tmp",
            "LC_ALL": "C",
            **env,
        }.items():
            argv += ["--setenv", name, value]
        return [*argv, "--chdir", cwd, "prlimit", f"--as={MEMORY_BYTES}", f"--fsize={FILE_BYTES}", "--core=0", *command]

    def run(
        self,
        command: Sequence[str],
        deadline: Deadline,
        output: Path,
        *,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        progress: Callable[[], str] | None = None,
    ) -> int:
        """Run to the end, output to a file; its exit code. `progress` words how far it is, from time to time."""
        process = spawn(self.argv(command, cwd, env or {}), log=output)
        told = time.monotonic()
        try:
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
                if deadline.expired:
                    raise DeadlineExpired(
                        f"{deadline.what}: not done after {deadline.seconds:.0f} s", evidence=tail(output)
                    )
                if progress and time.monotonic() - told > PROGRESS_SECONDS:
                    told = time.monotonic()
                    log.info("%s", progress())
            return process.returncode
        finally:
            end_group(process)


def tail(output: Path, size: int = 4000) -> str:
    """The end of a log, as text."""
    with output.open("rb") as log_file:
        log_file.seek(max(0, output.stat().st_size - size))
        return log_file.read().decode(errors="replace")
