"""Machines that already run: given the cell's kernel for one boot, and left as they were."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from existing import Machine, machines
from lab_processes import lab
from provider_contract import artifacts, tell

from labs import prepare
from labs.report.record import Run

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not shutil.which("qemu-img"), reason="NOT RUN: qemu-img is not installed; ci/setup.sh vagrant"),
]
SUITE = Path(__file__).parents[1] / "cgroup_atomicity/test_alone.py"
LEFT = "ls -d /boot/cgroup-lab /lab /boot/grub/custom.cfg /boot/config-* /lib/modules/*; grub-editenv list"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Machine]]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch, machines(2, home) as made:
        patch.setenv("HOME", str(home))
        yield made


def spec(machine: Machine, *parameters: str):
    whole = artifacts("ssh")
    return whole, prepare.machine(whole, hosts=[str(machine.host)], parameters=parameters)


def test_kernel_of_the_cell_for_one_boot(pair: list[Machine], tmp_path: Path, capsys):
    machine = pair[0]
    before = machine.login()
    was = [before.must("uname -r"), before.run(LEFT).out, before.must("cat /proc/sys/kernel/random/boot_id")]
    whole, asked = spec(machine)
    with prepare.boot(whole, tmp_path, asked) as booted:
        assert booted.facts["build_id"] == whole.kernel.build_id
        assert booted.guest.must("uname -r").strip() == whole.kernel.release
        assert booted.guest.must("cat /proc/sys/kernel/random/boot_id") != was[2]
        assert booted.guest.accelerator == "tcg"
        assert booted.runtime == "/lab/runc"
        assert booted.guest.must("/lab/runc --version").startswith("runc version")
        booted.guest.must("echo '<2>cgroup-lab: words' > /dev/kmsg; sleep 1")
        booted.guest.console.poll()
        assert "cgroup-lab: words" in booted.guest.console.text
    after = machine.login()
    assert [after.must("uname -r"), after.run(LEFT).out] == was[:2]
    assert after.must("cat /proc/sys/kernel/random/boot_id") != was[2]
    tell(capsys, f"boots of the machine: {machine.boots()}")


def test_two_at_once_one_with_a_kernel_that_panics(pair: list[Machine], tmp_path: Path, monkeypatch, capsys):
    """Two cells on two machines: one is judged, the other falls back to its own kernel, and the record says so."""
    releases = [machine.login().must("uname -r").strip() for machine in pair]
    boots = [machine.boots() for machine in pair]
    options = [word for machine in pair for word in ("--ssh", str(machine.host))]
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    options += ["--kernel", "6.1", "--kernel", "6.12", "--runtime", "runc", "-n", "2"]
    options += ["-p", "no:cacheprovider", "-p", "kernel_panics", "--record", str(tmp_path / "records")]
    options += ["--report", str(tmp_path / "report"), "-k", "no_lost_update and weights", str(SUITE)]
    with lab(["pytest", *options]) as running:
        code, out, err = running.finish(1800)
    assert code == 1, out + err
    (path,) = (tmp_path / "records").iterdir()
    found = Run.open(path).results()
    assert {result.outcome for result in found["6.1_runc_ssh"]} == {"pass"}, out
    (failed,) = found["6.12_runc_ssh"]
    assert failed.outcome == "fail"
    assert "did not come up" in failed.reason
    assert any(f"back on its own {release}" in failed.reason for release in releases)
    assert [machine.login().must("uname -r").strip() for machine in pair] == releases
    assert [machine.login().run(LEFT).out.count("cgroup-lab") for machine in pair] == [0, 0]
    # the one comes up with the lab's kernel and then with its own, the other with its own alone
    assert sorted(machine.boots() - before for machine, before in zip(pair, boots, strict=True)) == [1, 2]
    tell(capsys, failed.reason)
