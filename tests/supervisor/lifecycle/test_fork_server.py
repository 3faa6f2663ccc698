"""The fork server's answers to supervisors and the keeper when no process can be forked."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import pytest

from protocol import RELEASE
from supervisor.keeper import channel
from supervisor.keeper.channel import Channel, ClosedError
from supervisor.keeper.supervisor_process import SupervisorProcess
from supervisor.lifecycle import fork_server
from supervisor.lifecycle.fork_server import ForkServerLoop
from supervisor.processes import environment_block, fork_orders
from supervisor.processes.fork_orders import BROKEN, FAILED, FORK, SERVES
from tests.support.descriptors import no_descriptors

PARENT = 4242
DEADLINE_S = 20.0
FORK_SERVER = """
from supervisor.processes import fork_orders
fork_orders.IMPORTS = {"workers": ("starts_thread",)}
from supervisor import __main__
__main__.main()
"""
STARTS_THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=[99], daemon=True).start()
"""


class ChannelEnds:
    """The keeper's and a supervisor's ends of their channels to a fork server whose forks the test makes."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._channels = 0
        self.keeper, theirs = channel.pair()
        stack.callback(self.keeper.close)
        self.fork_server = ForkServerLoop(Channel(theirs))
        stack.callback(self.fork_server.close)
        self.connect_supervisor()

    def connect_supervisor(self) -> None:
        self._channels += 1
        self.orders, theirs = channel.pair()
        self._stack.callback(self.orders.close)
        self.keeper.send(channel.SERVE, str(self._channels), theirs.fileno())
        theirs.close()
        self.fork_server.serve()
        assert self.orders.receive(1.0) == (SERVES, RELEASE, -1)

    def send_order(self, arguments: str) -> None:
        file = os.memfd_create("environment")
        os.write(file, environment_block.pack({"A": "b"}))
        try:
            assert self.orders.send(FORK, arguments, file)
        finally:
            os.close(file)

    def order(self, arguments: str) -> None:
        self.send_order(arguments)
        self.fork_server.serve()


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChannelEnds]:
    monkeypatch.setattr(os, "fork", lambda: PARENT)
    monkeypatch.setattr(os, "waitpid", lambda pid, _: (pid, 0))
    monkeypatch.setattr(fork_orders, "IMPORTS", {})
    monkeypatch.setattr(fork_server, "_check_threads", lambda: None)
    monkeypatch.setattr(fork_server, "memory", Mock())
    with ExitStack() as stack:
        yield ChannelEnds(stack)


def failing(error: int) -> Callable[[], int]:
    def fork() -> int:
        raise OSError(error, os.strerror(error))

    return fork


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.ENOMEM])
def test_a_fork_that_fails_is_answered(keeper: ChannelEnds, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    monkeypatch.setattr(os, "fork", failing(error))
    keeper.order("7 workers")
    assert keeper.orders.receive(1.0) == (FAILED, f"7 {os.strerror(error)}", -1)


def test_the_second_fork_that_fails_is_answered(keeper: ChannelEnds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "waitpid", lambda pid, _: (pid, errno.EAGAIN << 8))
    keeper.order("7 workers")
    assert keeper.orders.receive(1.0) == (FAILED, f"7 {os.strerror(errno.EAGAIN)}", -1)


@pytest.mark.parametrize("failing_fork", [1, 2])
def test_the_keeper_reads_why_a_supervisor_could_not_be_forked(
    keeper: ChannelEnds, monkeypatch: pytest.MonkeyPatch, failing_fork: int
) -> None:
    if failing_fork == 1:
        monkeypatch.setattr(os, "fork", failing(errno.EAGAIN))
    else:
        monkeypatch.setattr(os, "waitpid", lambda pid, _: (pid, errno.EAGAIN << 8))
    supervisor = SupervisorProcess(0.0, {}, 0, "")
    keeper.keeper.send(channel.START, descriptor=supervisor.end_of_channel.fileno())
    supervisor.give(end_given=True, now=0.0)
    keeper.fork_server.serve()
    supervisor.receive(0.0)
    assert supervisor.end is not None
    why = f"no process can be started: {os.strerror(errno.EAGAIN)}"
    assert supervisor.describe_end() == f"it ended before it ran: {why}"
    keeper.order("7 workers")
    assert keeper.orders.receive(1.0) == (FAILED, f"7 {os.strerror(errno.EAGAIN)}", -1), "the fork server goes on"


def test_an_order_whose_environment_could_not_be_received_is_answered(keeper: ChannelEnds) -> None:
    keeper.send_order("7 workers")
    with no_descriptors():
        keeper.fork_server.serve()
    assert keeper.orders.receive(1.0) == (FAILED, f"7 {os.strerror(errno.EMFILE)}", -1)


def test_a_supervisor_that_has_ended_is_not_listened_to(keeper: ChannelEnds, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper.orders.close()
    keeper.fork_server.serve()
    assert keeper.keeper.receive(1.0) == (channel.CLOSED, "1", -1)
    keeper.connect_supervisor()
    monkeypatch.setattr(os, "fork", failing(errno.EAGAIN))
    keeper.order("1 workers")
    assert keeper.orders.receive(1.0) is not None, "the next one is"


def test_what_cannot_be_imported_is_not_forked(keeper: ChannelEnds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_orders, "IMPORTS", {"workers": ("nothing_of_that_name",)})
    keeper.send_order("6 workers")
    keeper.order("7 workers")
    refusal = (BROKEN, "ModuleNotFoundError: No module named 'nothing_of_that_name'", -1)
    assert keeper.orders.receive(1.0) == refusal
    with pytest.raises(ClosedError):
        keeper.orders.receive(1.0)
    keeper.connect_supervisor()
    assert keeper.orders.receive(1.0) == refusal, "the next supervisor is also told"
    with pytest.raises(ClosedError):
        keeper.orders.receive(1.0)
    assert keeper.keeper.receive() is None, "another channel would not help"


def test_a_channel_that_did_not_arrive_is_closed(keeper: ChannelEnds) -> None:
    ours, theirs = channel.pair()
    ours.close()
    keeper.keeper.send(channel.SERVE, "2", theirs.fileno())
    theirs.close()
    with no_descriptors():
        keeper.fork_server.serve()
    assert keeper.keeper.receive(1.0) == (channel.CLOSED, "2", -1)


def test_nothing_is_left_open_of_an_order_that_is_not_known(keeper: ChannelEnds) -> None:
    reader, writer = os.pipe()
    keeper.orders.send("another word", "7 workers", writer)
    os.close(writer)
    keeper.fork_server.serve()
    with os.fdopen(reader, "rb") as file:
        os.set_blocking(reader, False)
        assert file.read() == b"", "the last writer is gone"


def test_one_whose_imports_start_threads_begins_again_without_them(tmp_path: Path) -> None:
    """What a supervisor is forked from has one thread."""
    (tmp_path / "starts_thread.py").write_text(STARTS_THREAD)
    keeper, theirs = channel.pair()
    theirs.set_inheritable(True)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{Path.cwd()}:{tmp_path}",
        channel.VARIABLE: str(theirs.fileno()),
    }
    with subprocess.Popen([sys.executable, "-c", FORK_SERVER], env=environment, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        assert keeper.receive(DEADLINE_S) == (channel.PREPARED, "", -1)
        orders = []
        for number in (1, 2):
            ours, its = channel.pair()
            keeper.send(channel.SERVE, str(number), its.fileno())
            its.close()
            assert ours.receive(DEADLINE_S) == (SERVES, RELEASE, -1)
            refusal = ours.receive(DEADLINE_S)
            assert refusal is not None
            assert (refusal[0], "1 threads" in refusal[1]) == (BROKEN, True)
            orders.append(ours)
        assert keeper.receive(DEADLINE_S) == (channel.PREPARED, "", -1)
        assert len([*Path(f"/proc/{process.pid}/task").iterdir()]) == 1
        for each in (*orders, keeper):
            each.close()
        assert process.wait(DEADLINE_S) == 0
