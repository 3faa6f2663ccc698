"""Streams that are read together while very many pieces come: nothing is missed, at the beginning, between, at the end."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from protocol.loop import Loop
from workers.pace import CROWD, WINDOW
from workers.together import Together

DEADLINE = 5.0


class Stream:
    """One connection, and the engine's end of it."""

    def __init__(self, loop: Loop, together: Together) -> None:
        self.engine, self._socket = socket.socketpair()
        self._socket.setblocking(False)
        self._loop, self._together = loop, together
        self.seen = b""
        self.woken = True
        self.open = True
        self.wake(on=True)
        together.settle(self)

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


class House:
    """A loop, and the streams that are read in it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.together = Together(self.loop)
        self.streams = [Stream(self.loop, self.together) for _ in range(CROWD)]

    def until(self, happened: object) -> None:
        assert callable(happened)
        end = time.monotonic() + DEADLINE
        while not happened():
            assert time.monotonic() < end
            self.loop.turn(0.01)

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
def house() -> Iterator[House]:
    house = House()
    yield house
    for stream in house.streams:
        stream.close()
    house.until(lambda: not house.loop._timers)  # a tick that is still to come closes what it has open
    house.loop.close()


def test_a_crowd_is_read_in_ticks_and_nothing_is_missed(house: House) -> None:
    house.hurry()
    assert not any(stream.woken for stream in house.streams)
    for number in range(20):
        house.say(b"%d," % number)


def test_a_stream_that_settles_later_joins(house: House) -> None:
    house.hurry()
    late = Stream(house.loop, house.together)
    house.streams.append(late)
    assert not late.woken
    house.say(b"for all")


def test_an_end_is_read_like_all_else(house: House) -> None:
    house.hurry()
    first = house.streams.pop(0)
    first.engine.sendall(b"last words")
    first.engine.shutdown(socket.SHUT_WR)
    house.until(lambda: not first.open)
    assert first.seen.endswith(b"last words")


def test_what_left_is_not_read_under_its_old_number(house: House) -> None:
    house.hurry()
    gone = house.streams.pop(0)
    number = gone.fileno()
    gone.close()
    other, end = socket.socketpair()
    with other, end:
        assert number in (other.fileno(), end.fileno()), "the system gives numbers out again at once"
        house.streams.append(Stream(house.loop, house.together))
        house.say(b"who is there")


def test_when_little_comes_each_is_woken_again(house: House) -> None:
    house.hurry()
    house.until(lambda: all(stream.woken for stream in house.streams))
    house.say(b"slowly")


def test_few_are_not_worth_it(house: House) -> None:
    house.hurry()
    house.streams.pop().close()
    house.until(lambda: all(stream.woken for stream in house.streams))
    house.say(b"one by one")
