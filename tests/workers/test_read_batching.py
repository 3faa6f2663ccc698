"""Streams that are read together while very many pieces come: nothing is missed, at the beginning, between, at the end."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from protocol.runtime.loop import Loop
from workers.stream.read_batching import ReadBatcher
from workers.stream.read_batching_policy import MIN_STREAMS, WINDOW

DEADLINE = 5.0


class FakeStream:
    """One connection, and the engine's end of it."""

    def __init__(self, loop: Loop, read_batcher: ReadBatcher) -> None:
        self.engine, self._socket = socket.socketpair()
        self._socket.setblocking(False)
        self._loop, self._together = loop, read_batcher
        self.seen = b""
        self.woken = True
        self.open = True
        self.wake(on=True)
        read_batcher.settle(self)

    def fileno(self) -> int:
        return self._socket.fileno()

    def wake_at(self, size: int) -> None:
        raise AssertionError("nobody is patient here")

    def wake(self, on: bool) -> None:
        self.woken = on
        self._loop.on_readable(self.fileno(), self.read if on else None)

    def read(self) -> None:
        data = self._socket.recv(65536)
        self.seen += data
        if data:
            self._together.came(self)
        else:
            self.close()

    def close(self) -> None:
        if self.open:
            self.open = False
            self._loop.on_readable(self.fileno(), None)
            self._socket.close()
            self._together.leave(self)
            self.engine.close()


class StreamLoop:
    """A loop, and the streams that are read in it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.read_batcher = ReadBatcher(self.loop)
        self.streams = [FakeStream(self.loop, self.read_batcher) for _ in range(MIN_STREAMS)]

    def until(self, happened: object) -> None:
        assert callable(happened)
        end = time.monotonic() + DEADLINE
        while not happened():
            assert time.monotonic() < end
            self.loop.run_once(0.01)

    def say(self, data: bytes) -> None:
        """Send it to everybody, and wait until everybody has it."""
        wanted = [stream.seen + data for stream in self.streams]
        for stream in self.streams:
            stream.engine.sendall(data)
        self.until(lambda: [stream.seen for stream in self.streams] == wanted)

    def hurry(self) -> None:
        """Send until they are read in ticks."""
        for _ in range(100 * WINDOW):
            if not self.streams[0].woken:
                return
            self.say(b"x")
        raise AssertionError("never read together")


@pytest.fixture
def stream_loop() -> Iterator[StreamLoop]:
    stream_loop = StreamLoop()
    yield stream_loop
    for stream in stream_loop.streams:
        stream.close()
    stream_loop.until(lambda: not stream_loop.loop._timers)  # a tick that is still to come closes what it has open
    stream_loop.loop.close()


def test_many_streams_are_read_in_ticks_and_nothing_is_missed(stream_loop: StreamLoop) -> None:
    stream_loop.hurry()
    assert not any(stream.woken for stream in stream_loop.streams)
    for number in range(20):
        stream_loop.say(b"%d," % number)


def test_a_stream_that_settles_later_joins(stream_loop: StreamLoop) -> None:
    stream_loop.hurry()
    late = FakeStream(stream_loop.loop, stream_loop.read_batcher)
    stream_loop.streams.append(late)
    assert not late.woken
    stream_loop.say(b"for all")


def test_an_end_is_read_like_all_else(stream_loop: StreamLoop) -> None:
    stream_loop.hurry()
    first = stream_loop.streams.pop(0)
    first.engine.sendall(b"last words")
    first.engine.shutdown(socket.SHUT_WR)
    stream_loop.until(lambda: not first.open)
    assert first.seen.endswith(b"last words")


def test_what_left_is_not_read_under_its_old_number(stream_loop: StreamLoop) -> None:
    stream_loop.hurry()
    gone = stream_loop.streams.pop(0)
    number = gone.fileno()
    gone.close()
    other, end = socket.socketpair()
    with other, end:
        assert number in (other.fileno(), end.fileno()), "the system gives numbers out again at once"
        stream_loop.streams.append(FakeStream(stream_loop.loop, stream_loop.read_batcher))
        stream_loop.say(b"who is there")


def test_when_little_comes_each_is_woken_again(stream_loop: StreamLoop) -> None:
    stream_loop.hurry()
    stream_loop.until(lambda: all(stream.woken for stream in stream_loop.streams))
    stream_loop.say(b"slowly")


def test_few_are_not_worth_it(stream_loop: StreamLoop) -> None:
    stream_loop.hurry()
    stream_loop.streams.pop().close()
    stream_loop.until(lambda: all(stream.woken for stream in stream_loop.streams))
    stream_loop.say(b"one by one")
