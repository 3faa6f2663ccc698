"""The systemd unit says what the server's promises need. ``python -m tests.bare --unit`` runs it under a real systemd."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.config.settings import Settings
from protocol.runtime.control_groups import SERVER_GROUP
from supervisor.lifecycle.startup import EXIT_USAGE

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "systemd" / "lemonbus.service"
OF_254 = "DelegateSubgroup"
"""A line of the unit that systemd understands since version 254; an older one says that it leaves it out."""
LAST_WORDS_S = 10.0
"""Time that a server has after its grace period, to report the requests that it cut off."""


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    section = UNIT.read_text().partition("[Service]\n")[2].partition("\n[Install]")[0]
    lines = [line for line in section.splitlines() if line and not line.startswith("#")]
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def test_the_death_of_the_supervisor_ends_no_stream(service: dict[str, str]) -> None:
    assert service["KillMode"] == "process", "systemd would kill gateways and workers with their supervisor"
    assert service["RuntimeDirectoryPreserve"] == "restart", "their sockets are there until they are gone"
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == str(EXIT_USAGE)


def test_a_stop_has_time_for_the_grace(service: dict[str, str]) -> None:
    assert float(service["TimeoutStopSec"]) >= Settings().grace + LAST_WORDS_S


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd")
def test_systemd_understands_it(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/lemonbus/bin/lemonbus", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert [line for line in complaints if OF_254 not in line] == []


def test_only_the_groups_of_its_own_engines_can_be_written(service: dict[str, str]) -> None:
    assert service["Delegate"] == "cpu memory"
    assert service["DelegateSubgroup"] == SERVER_GROUP
    assert service["ProtectControlGroups"] == "yes"
    assert service["ReadWritePaths"] == "-/sys/fs/cgroup/system.slice/%n"


def test_it_hides_no_gpu(service: dict[str, str]) -> None:
    """ProtectClock allows a list of devices, and with it no other one; the drop-in for machines without GPUs hides all of them."""
    assert not {"ProtectClock", "PrivateDevices", "DevicePolicy", "DeviceAllow"} & service.keys()
    assert "\nPrivateDevices=yes\n" in UNIT.with_name("no-devices.conf").read_text()
