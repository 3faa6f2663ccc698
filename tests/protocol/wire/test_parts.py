"""Long messages in parts: how they are split, put together, and what is refused."""

from __future__ import annotations

import pytest

from protocol.messages.peers import Ping
from protocol.wire import envelope, parts
from protocol.wire.parts import PART_BYTES, PartialMessage, PartsError, SupervisorMessages


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 3 * PART_BYTES + 7])
def test_a_message_arrives_whole_in_frames_that_every_listener_accepts(size: int) -> None:
    message = bytes(number % 251 for number in range(size))
    sent = list(parts.split(message))
    assert all(len(frame) <= parts.MAX_FRAME_BYTES - 256 for frame in sent), "CURVE adds some bytes"
    arriving = PartialMessage(size)
    *before, last = [arriving.take(frame) for frame in sent]
    assert (before, last) == ([None] * (len(sent) - 1), message)
    assert arriving.take(b"next") == b"next"


def frames_of(size: int) -> list[bytes]:
    return list(parts.split(bytes(size)))


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        (frames_of(2 * PART_BYTES)[1:], "without the ones before"),
        (frames_of(3 * PART_BYTES)[1:2], "without the ones before"),
        ([frames_of(2 * PART_BYTES)[0], b"whole", *frames_of(2 * PART_BYTES)[1:]], "without the ones before"),
        ([b"LB+ other\n"], "without the ones before"),
        (frames_of(4 * PART_BYTES), "more than 200000 bytes"),
    ],
    ids=["last", "next", "other message between", "unknown line", "too long"],
)
def test_wrong_parts_are_refused_and_the_next_message_arrives(frames: list[bytes], why: str) -> None:
    arriving = PartialMessage(200_000)
    with pytest.raises(PartsError, match=why):
        list(map(arriving.take, frames))
    assert [arriving.take(frame) for frame in frames_of(2 * PART_BYTES)] == [None, bytes(2 * PART_BYTES)]


def test_a_message_that_was_broken_off_is_replaced_by_the_next_one() -> None:
    arriving = PartialMessage()
    arriving.take(frames_of(3 * PART_BYTES)[0])
    assert [arriving.take(frame) for frame in frames_of(PART_BYTES + 1)] == [None, bytes(PART_BYTES + 1)]


def test_the_last_ping_is_given_again_while_a_long_message_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(parts.time, "monotonic", lambda: now)
    arriving, first, last = SupervisorMessages(), *frames_of(PART_BYTES + 1)
    assert arriving.take(first) is None, "no ping has come"
    assert arriving.take(last) == bytes(PART_BYTES + 1)
    ping = envelope.encode(Ping(7))
    assert arriving.take(ping) == ping
    now += parts.REPEAT_S / 2
    assert arriving.take(first) is None, "it was just answered"
    now += parts.REPEAT_S
    assert [arriving.take(first), arriving.take(first)] == [ping, None]
    now += parts.REPEAT_S
    assert arriving.take(last) == bytes(PART_BYTES + 1)
