"""What a service manager is told, at a socket of the test's own: with a name in the file system, and with an abstract one."""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.keeper.keeper_process import KeeperProcess
from tests.support import processes
from tests.support.waiting import wait_for


class Manager:
    """The service manager's end."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(10.0)
        self._socket.bind(address.replace("@", "\0"))

    def next(self, ignored: str = "WATCHDOG=1") -> dict[str, str]:
        """Return the variables of the next message that is another one."""
        while (message := self._socket.recv(4096).decode()) == ignored:
            pass
        return dict(line.split("=", 1) for line in message.split("\n"))

    def quiet(self, seconds: float) -> bool:
        """Return whether no message comes for some time."""
        return not select.select([self._socket], [], [], seconds)[0]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "file" else f"@lemonbus-{secrets.token_hex(8)}"


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    listening = Manager(address)
    yield listening
    listening.close()


def test_the_life_of_a_server(address: str, manager: Manager) -> None:
    with KeeperProcess("serve", environment={"NOTIFY_SOCKET": address}) as keeper:
        assert manager.next() == {"READY": "1", "STATUS": "serving 0"}
        assert keeper.wait_line("prepared").endswith(" -"), "no child can speak in its name"
        before = time.monotonic_ns() // 1000
        keeper.send(signal.SIGHUP)
        reloading = manager.next()
        assert reloading["RELOADING"] == "1"
        assert before <= int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        assert manager.next() == {"READY": "1", "STATUS": "serving 0"}
        os.kill(keeper.wait_started(0), signal.SIGKILL)
        assert manager.next() == {"STATUS": "the supervisor is started again (SIGKILL)"}
        assert manager.next() == {"READY": "1", "STATUS": "serving 1"}
        keeper.send(signal.SIGUSR2)
        assert manager.next()["RELOADING"] == "1"
        assert manager.next() == {"READY": "1", "STATUS": "serving 2"}
        keeper.send(signal.SIGTERM)
        assert manager.next()["STOPPING"] == "1"
        assert keeper.wait_exit() == 0
        assert manager.next() == {"STATUS": "ended"}, "what systemctl status shows of a unit that was stopped"


def test_the_watchdog_is_fed_while_the_supervisor_lives(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
    try:
        with KeeperProcess("serve", environment=environment) as keeper:
            assert manager.next()["READY"] == "1"
            for _ in range(5):
                assert manager.next(ignored="") == {"WATCHDOG": "1"}
            with processes.stopped(keeper.wait_started(0)):
                wait_for(lambda: manager.quiet(1.0) or not manager.next(ignored=""), "its last heartbeat is too old")
            assert manager.next(ignored="") == {"WATCHDOG": "1"}
    finally:
        manager.close()


def test_the_watchdog_of_another_process_is_not_fed(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000", "WATCHDOG_PID": "1"}
    try:
        with KeeperProcess("serve", environment=environment):
            assert manager.next(ignored="")["READY"] == "1"
            assert manager.quiet(1.0)
    finally:
        manager.close()


def test_a_manager_that_does_not_exist_is_not_an_error() -> None:
    with KeeperProcess("serve", environment={"NOTIFY_SOCKET": "/nowhere/notify"}) as keeper:
        keeper.wait_started(0)
        keeper.send(signal.SIGTERM)
        assert keeper.wait_exit() == 0
