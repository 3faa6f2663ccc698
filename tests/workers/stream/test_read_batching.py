"""Streams that are read together while very many pieces arrive: no byte is missed at the start, in the middle or at the end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from protocol.runtime.loop import Loop
from tests.support.descriptors import no_descriptors
from workers.stream.read_batching import MIN_STREAMS, WINDOW, ReadBatcher

DEADLINE = 5.0


class FakeStream:
    """One connection, and the engine's end of it."""

    def __init__(self, loop: Loop, read_batcher: ReadBatcher) -> None:
        self.engine, self._socket = socket.socketpair()
        self._socket.setblocking(False)
        self._loop, self._read_batcher = loop, read_batcher
        self.received = b""
        self.watched = True
        self.open = True
        self.watch(on=True)
        read_batcher.add_stream(self)

    def fileno(self) -> int:
        return self._socket.fileno()

    def set_low_water(self, size: int) -> None:
        raise AssertionError("no connection is patient here")

    def watch(self, on: bool) -> None:
        self.watched = on
        self._loop.on_readable(self.fileno(), self.read if on else None)

    def read(self) -> None:
        data = self._socket.recv(65536)
        self.received += data
        if data:
            self._read_batcher.count_read(self)
        else:
            self.close()

    def close(self) -> None:
        if self.open:
            self.open = False
            self._loop.on_readable(self.fileno(), None)
            self._socket.close()
            self._read_batcher.remove(self)
            self.engine.close()


class StreamLoop:
    """A loop, and the streams that are read in it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.read_batcher = ReadBatcher(self.loop)
        self.streams = [FakeStream(self.loop, self.read_batcher) for _ in range(MIN_STREAMS)]

    def until(self, happened: Callable[[], object]) -> None:
        end = time.monotonic() + DEADLINE
        while not happened():
            assert time.monotonic() < end
            self.loop.run_once(0.01)

    def send(self, data: bytes) -> None:
        """Send to every stream, and wait until every stream has received it."""
        wanted = [stream.received + data for stream in self.streams]
        for stream in self.streams:
            stream.engine.sendall(data)
        self.until(lambda: [stream.received for stream in self.streams] == wanted)

    def send_until_batched(self) -> None:
        """Send until the streams are read together."""
        for _ in range(100 * WINDOW):
            if not self.streams[0].watched:
                return
            self.send(b"x")
        raise AssertionError("never read together")


@pytest.fixture
def stream_loop() -> Iterator[StreamLoop]:
    stream_loop = StreamLoop()
    yield stream_loop
    for stream in stream_loop.streams:
        stream.close()
    stream_loop.until(lambda: not stream_loop.loop._timers)  # the last tick closes the batch's epoll
    stream_loop.loop.close()


def test_many_streams_are_read_together_and_no_byte_is_missed(stream_loop: StreamLoop) -> None:
    stream_loop.send_until_batched()
    assert not any(stream.watched for stream in stream_loop.streams)
    for number in range(20):
        stream_loop.send(b"%d," % number)


def test_without_descriptors_streams_are_read_one_by_one_and_no_byte_is_missed(stream_loop: StreamLoop) -> None:
    with no_descriptors():
        for _ in range(10 * WINDOW):
            stream_loop.send(b"x")
    assert stream_loop.loop.errors == 0
    assert all(stream.watched for stream in stream_loop.streams)
    stream_loop.send_until_batched()


def test_a_later_stream_joins_the_batch(stream_loop: StreamLoop) -> None:
    stream_loop.send_until_batched()
    late = FakeStream(stream_loop.loop, stream_loop.read_batcher)
    stream_loop.streams.append(late)
    assert not late.watched
    stream_loop.send(b"for all")


def test_a_held_stream_is_not_read_and_then_misses_no_byte(stream_loop: StreamLoop) -> None:
    stream_loop.send_until_batched()
    held = stream_loop.streams.pop(0)
    before = held.received
    stream_loop.read_batcher.hold(held, on=True)
    held.engine.sendall(b"later")
    for _ in range(2 * WINDOW):  # ticks, and the end of ticking
        stream_loop.send(b"x")
    assert held.received == before
    stream_loop.read_batcher.hold(held, on=False)
    stream_loop.until(lambda: held.received == before + b"later")
    held.close()


def test_the_end_of_a_batched_stream_is_read(stream_loop: StreamLoop) -> None:
    stream_loop.send_until_batched()
    first = stream_loop.streams.pop(0)
    first.engine.sendall(b"last words")
    first.engine.shutdown(socket.SHUT_WR)
    stream_loop.until(lambda: not first.open)
    assert first.received.endswith(b"last words")


def test_a_reused_descriptor_number_is_not_read_as_the_old_stream(stream_loop: StreamLoop) -> None:
    stream_loop.send_until_batched()
    removed = stream_loop.streams.pop(0)
    number = removed.fileno()
    removed.close()
    other, end = socket.socketpair()
    with other, end:
        assert number in (other.fileno(), end.fileno()), "the system reuses the lowest free number"
        stream_loop.streams.append(FakeStream(stream_loop.loop, stream_loop.read_batcher))
        stream_loop.send(b"only for streams")


def test_batching_ends_when_few_pieces_arrive(stream_loop: StreamLoop) -> None:
    stream_loop.send_until_batched()
    stream_loop.until(lambda: all(stream.watched for stream in stream_loop.streams))
    stream_loop.send(b"slowly")


def test_batching_ends_when_few_streams_are_left(stream_loop: StreamLoop) -> None:
    stream_loop.send_until_batched()
    stream_loop.streams.pop().close()
    stream_loop.until(lambda: all(stream.watched for stream in stream_loop.streams))
    stream_loop.send(b"one by one")
