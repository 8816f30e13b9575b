"""The one door to processes: argv in, value out, a deadline always."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from labs.deadline import Deadline
from labs.errors import CommandFailed, DeadlineExpired, MissingProgram

# Program -> Debian package, for every program that the lab calls on the host.
PACKAGES = {
    "apt-get": "apt",
    "bwrap": "bubblewrap",
    "cp": "coreutils",
    "cpio": "cpio",
    "depmod": "kmod",
    "dpkg-deb": "dpkg",
    "dpkg-source": "dpkg-dev",
    "env": "coreutils",
    "gcc": "gcc",
    "git": "git",
    "go": "golang-go",
    "ld": "binutils",
    "mke2fs": "e2fsprogs",
    "modprobe": "kmod",
    "mmdebstrap": "mmdebstrap",
    "newuidmap": "uidmap",
    "qemu-system-x86_64": "qemu-system-x86",
    "setpriv": "util-linux",
    "ssh-keygen": "openssh-client",
    "tar": "tar",
    "unshare": "util-linux",
}
# The same for programs that only some providers need.
OPTIONAL = {
    "dnsmasq": "dnsmasq-base",
    "libvirtd": "libvirt-daemon-system",
    "nsenter": "util-linux",
    "qemu-img": "qemu-utils",
    "vagrant": "vagrant vagrant-libvirt",
}
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"  # mke2fs and depmod live there; an ordinary user's PATH lacks it


@dataclass(frozen=True)
class Completed:
    """What a finished program left. Text is decoded as UTF-8, undecodable bytes replaced."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{SBIN}", "LC_ALL": "C.UTF-8", **(extra or {})}


def which(program: str) -> str:
    """Full path of a program; MissingProgram names the package that brings it."""
    found = shutil.which(program, path=_environment(None)["PATH"])
    if not found:
        package = {**PACKAGES, **OPTIONAL}.get(program, program)
        raise MissingProgram(f"program {program} is not installed", mend=f"apt-get install {package}")
    return found


def run(
    argv: Sequence[str],
    deadline: Deadline,
    *,
    stdin: bytes = b"",
    stdout: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    expect: Sequence[int] | None = (0,),
    grace: float = 0.0,
) -> Completed:
    """Run a program to its end; its whole process group is killed at the deadline or on Ctrl-C, with `grace` after so
    many seconds in which it may end what it started itself.

    `stdout` writes standard output to a file instead of memory. `expect=None` accepts every exit code.
    Raises MissingProgram, DeadlineExpired, CommandFailed (with the last lines of standard error).
    """
    program = which(argv[0])
    out: IO[bytes] | int = stdout.open("wb") if stdout else subprocess.PIPE
    try:
        with subprocess.Popen(
            [program, *argv[1:]],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=_environment(env),
            start_new_session=True,
        ) as process:
            try:
                raw_out, raw_err = process.communicate(stdin, timeout=deadline.remaining())
            except BaseException as error:
                end_group(process, grace)
                if isinstance(error, subprocess.TimeoutExpired):
                    tail = (error.stderr or b"").decode(errors="replace")[-2000:]
                    raise DeadlineExpired(
                        f"{deadline.what}: {argv[0]} not done after {deadline.seconds:.0f} s", evidence=tail
                    ) from None
                raise
    finally:
        if not isinstance(out, int):
            out.close()
    done = Completed(
        tuple(argv), process.returncode, (raw_out or b"").decode(errors="replace"), raw_err.decode(errors="replace")
    )
    if expect is not None and done.code not in expect:
        lines = [line for line in done.err.splitlines() if line.strip()] or ["(no message)"]
        raise CommandFailed(f"{argv[0]} ended with {done.code}: {lines[-1].strip()}", evidence=done.err[-4000:])
    return done


def spawn(
    argv: Sequence[str], *, log: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a long-lived child whose output goes to `log`; it is killed when the lab dies, however that happens.

    The caller must end it with `end_group`. Call it from a thread that outlives the child: the kernel sends the
    parent-death signal when the *thread* that forked ends (prctl(2), PR_SET_PDEATHSIG).
    """
    program = which(argv[0])
    with log.open("ab") as out:
        return subprocess.Popen(
            [which("setpriv"), "--pdeathsig", "KILL", program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
            env=_environment(env),
            start_new_session=True,
        )


def end_group(process: subprocess.Popen[bytes], grace: float = 0.0) -> None:
    """Kill a child started here with all of its process group, and reap it; with `grace` it is asked first, as by
    Ctrl-C, and has so many seconds."""
    try:
        if grace:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=grace)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
