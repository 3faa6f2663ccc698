"""The fork server's answers when no process can be forked."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from unittest.mock import Mock

import pytest

from supervisor.keeper import channel
from supervisor.keeper.channel import Channel, ClosedError
from supervisor.lifecycle import fork_server
from supervisor.lifecycle.fork_server import ForkServerLoop
from supervisor.processes import environment_block, fork_orders
from supervisor.processes.fork_orders import FAILED, FORK
from tests.support.descriptors import no_descriptors

PARENT = 4242


class ChannelEnds:
    """The keeper's and a supervisor's ends of their channels to a fork server whose forks the test makes."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._keeper, theirs = channel.pair()
        stack.callback(self._keeper.close)
        self.fork_server = ForkServerLoop(Channel(theirs))
        stack.callback(self.fork_server.close)
        self.connect_supervisor()

    def connect_supervisor(self) -> None:
        self.orders, theirs = channel.pair()
        self._stack.callback(self.orders.close)
        self._keeper.send(channel.SERVE, "", theirs.fileno())
        theirs.close()
        self.fork_server.serve()

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


def test_an_order_whose_environment_could_not_be_received_is_answered(keeper: ChannelEnds) -> None:
    keeper.send_order("7 workers")
    with no_descriptors():
        keeper.fork_server.serve()
    assert keeper.orders.receive(1.0) == (FAILED, f"7 {os.strerror(errno.EMFILE)}", -1)


def test_a_supervisor_that_has_ended_is_not_listened_to(keeper: ChannelEnds, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper.orders.close()
    keeper.fork_server.serve()
    keeper.connect_supervisor()
    monkeypatch.setattr(os, "fork", failing(errno.EAGAIN))
    keeper.order("1 workers")
    assert keeper.orders.receive(1.0) is not None, "the next one is"


def test_what_cannot_be_imported_is_not_forked(
    keeper: ChannelEnds, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fork_orders, "IMPORTS", {"workers": "nothing_of_that_name"})
    keeper.order("7 workers")
    keeper.connect_supervisor()
    with pytest.raises(ClosedError):
        keeper.orders.receive(1.0)
    assert "nothing_of_that_name" in capsys.readouterr().err
