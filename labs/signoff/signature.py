"""The user's own key under a sign-off: `ssh-keygen -Y`, format SSHSIG (OpenSSH, PROTOCOL.sshsig)."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from labs.command import run
from labs.deadline import Deadline
from labs.errors import BadInput, CommandFailed

NAMESPACE = "cgroup-lab"  # a signature made for another purpose is none here
SECONDS = 120  # a person may have to type a passphrase, or touch a token


def signature_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sig")


def known(key: Path) -> None:
    """BadInput unless a file holds an SSH key, the private or the public half."""
    argv = ["ssh-keygen", "-l", "-f", str(key)]
    if not key.is_file() or run(argv, Deadline(SECONDS, "reading the key"), expect=None).code != 0:
        raise BadInput(f"{key}: no such key", mend="give --sign the file of an SSH key, as ~/.ssh/id_ed25519")


def sign(path: Path, key: Path) -> Path:
    """Sign a file with a private key, or with a public one whose private half an agent holds; the signature's path."""
    known(key)
    signature_of(path).unlink(missing_ok=True)  # ssh-keygen would ask whether to write over it
    argv = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE, str(path)]
    try:
        run(argv, Deadline(SECONDS, "signing"))
    except CommandFailed as error:
        raise BadInput(f"{key}: cannot sign: {error}", mend="give --sign the file of an SSH key") from None
    return signature_of(path)


def signer(path: Path) -> str:
    """Fingerprint of the key under a file. BadInput when the signature is not this file's."""
    if not signature_of(path).is_file():
        raise BadInput(f"{signature_of(path).name}: is no file")
    argv = ["ssh-keygen", "-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(signature_of(path))]
    done = run(argv, Deadline(SECONDS, "checking the signature"), stdin=path.read_bytes(), expect=None)
    found = re.search(r"SHA256:\S+", done.out + done.err)
    if done.code != 0 or not found:
        raise BadInput(f"{signature_of(path).name}: is no signature of {path.name}: {(done.err or done.out).strip()}")
    return found[0]


def signed_by(path: Path, key: Path) -> None:
    """BadInput unless the file is signed with the private half of a public key."""
    words = key.read_text(errors="replace").split() if key.is_file() else []
    if len(words) < 2:
        raise BadInput(f"{key}: no public key", mend="give --key a file as ~/.ssh/id_ed25519.pub")
    with tempfile.TemporaryDirectory(prefix="cgroup-lab-") as name:
        allowed = Path(name) / "allowed"
        allowed.write_text(f"signer {words[0]} {words[1]}\n")
        argv = ["ssh-keygen", "-Y", "verify", "-f", str(allowed), "-I", "signer", "-n", NAMESPACE]
        argv += ["-s", str(signature_of(path))]
        done = run(argv, Deadline(SECONDS, "checking the signature"), stdin=path.read_bytes(), expect=None)
    if done.code != 0:
        raise BadInput(f"{path.name}: is not signed with {key}: {(done.err or done.out).strip()}")
