"""Frames: an encoded message is decoded again, and any other bytes are recognized and do no harm."""

from __future__ import annotations

import contextlib
import struct

import msgspec
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from protocol import ids
from protocol.messages.engines import ModelChecked
from protocol.messages.events import Event, EventKind, pack_batch, unpack_batch
from protocol.messages.peers import Ping
from protocol.messages.work import Cancel, SubmitRequest
from protocol.wire import envelope, frames
from tests.support.accepted_share import accepted_share

ASK = SubmitRequest(1, 1, "a model", "chat/completions", "req-1", weight=2, size=3, query="a=b")
NUMBERS = st.integers(0, 2**63)
EVENTS = st.builds(Event, NUMBERS, NUMBERS, NUMBERS, st.sampled_from(EventKind), NUMBERS, st.binary())
TOPIC = ids.topic("g01234567")


@given(st.binary(), st.integers(0, 2**40))
def test_a_message_and_its_payload_come_back(payload: bytes, number: int) -> None:
    message = msgspec.structs.replace(ASK, number=number)
    assert envelope.decode(envelope.encode(message, payload)) == (message, payload)
    assert envelope.decode(envelope.encode(Ping(number))) == (Ping(number), b"")


def framed(name: bytes, head: bytes, rest: bytes) -> bytes:
    return b"%b %b\n%b%b%b" % (envelope.PROTOCOL_MARK, name, len(head).to_bytes(4, "big"), head, rest)


HEADS = st.binary(max_size=9) | st.sampled_from([{}, {"need": 1}, {"need": "x"}, {"other": 0}]).map(
    msgspec.msgpack.encode
)
FRAMED = st.builds(
    framed, st.sampled_from([b"ModelChecked", b"ModelChecked", b"SubmitRequest"]), HEADS, st.binary(max_size=9)
)


@accepted_share(0.02, examples=200, noise=st.binary() | FRAMED)
def test_any_bytes_are_decoded_or_malformed(noise: bytes) -> bool:
    try:
        message, payload = envelope.decode(noise)
    except envelope.MalformedError:
        return False
    assert isinstance(message, ModelChecked)
    assert noise.endswith(payload)
    return True


@accepted_share(
    0.05,
    examples=200,
    position=st.integers(0, len(envelope.encode(ASK, b"body")) - 1),
    byte=st.none() | st.integers(0, 255),
)
def test_a_frame_that_lost_or_changed_bytes_is_malformed_or_another_message(position: int, byte: int | None) -> bool:
    frame = bytearray(envelope.encode(ASK, b"body"))
    if byte is None:
        del frame[position:]
    else:
        frame[position] = byte
    try:
        message, payload = envelope.decode(bytes(frame))
    except envelope.MalformedError:
        return False
    assert isinstance(message, msgspec.Struct)
    assert len(payload) <= len(frame)
    return True


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b"", "expected b'LB12' and a message"),
        (b"LB5 Ping\n\x00\x00\x00\x01\x80", "expected version 12 of the protocol, not 5"),
        (b"LB12 Pingpong\n\x00\x00\x00\x01\x80", "unknown message"),
        (b"LB0 Ping", "expected b'LB12' and a message"),
        (b"LB0 Ping\n", "Ping: its head is not all here"),
        (b"LB0 Ping\n\x00\x00\x00\x00", "Ping: its head is not all here"),
        (b"LB0 Ping\n\xff\xff\xff\xff\x81", "Ping: its head is not all here"),
        (b"LB0 Ping\n\x00\x00\x00\x01\x81", "Ping: Input data was truncated"),
        (b"LB12 Cancel\n\x00\x00\x00\x0c\x81\xa7gateway\xa2\xff\xff", "Cancel: "),
        (b"LB12 Cancel\n" + struct.pack(">I", 40_000) + b"\x91" * 40_000, "Cancel: "),
    ],
)
def test_an_error_names_what_is_wrong_with_a_frame(frame: bytes, expected: str) -> None:
    with pytest.raises(envelope.MalformedError) as caught:
        envelope.decode(frame)
    assert expected in str(caught.value)


def test_an_error_does_not_repeat_the_content_of_a_frame() -> None:
    with pytest.raises(envelope.MalformedError) as caught:
        envelope.decode(b"LB12 Nope\n\x00\x00\x00\x01\x80my secret prompt")
    assert "Nope" in str(caught.value)
    assert "secret" not in str(caught.value)


@given(st.lists(EVENTS))
def test_a_batch_of_events_comes_back_with_its_worker(batch: list[Event]) -> None:
    frame = b"".join((TOPIC, b"w89abcdef", b".", pack_batch(batch)))
    assert unpack_batch(frame, len(TOPIC)) == ("w89abcdef", batch)


@given(st.binary())
def test_noise_behind_a_topic_is_not_a_batch(noise: bytes) -> None:
    with contextlib.suppress(ValueError):
        worker, batch = unpack_batch(TOPIC + noise, len(TOPIC))
        assert isinstance(worker, str)
        assert isinstance(batch, list)


def test_a_message_of_several_frames_does_not_disturb_the_next_ones() -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as reader, context.socket(zmq.PUSH) as writer:
        reader.bind("inproc://wire")
        writer.connect("inproc://wire")
        assert list(frames.receive_each(reader)) == []
        cancel = envelope.encode(Cancel("g1", 1, 1, "cancelled"))
        writer.send_multipart([b"", b"odd", b""])
        assert frames.send(writer, cancel)
        found = list(frames.receive_each(reader))
        assert found == [b"", b"odd", b"", cancel]
        assert envelope.decode(found[-1])[0] == Cancel("g1", 1, 1, "cancelled")
        writer.close(0)
        reader.close(0)


def test_a_full_socket_takes_nothing() -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as writer:
        assert not frames.send(writer, b"x"), "no peer is connected"
        writer.close(0)


def test_a_router_names_the_sender_and_sends_to_one_peer() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        dealer.routing_id = b"w1"
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.bind("inproc://router")
        dealer.connect("inproc://router")
        assert frames.send(dealer, b"hello")
        assert list(frames.receive_routed(router)) == [[b"w1", b"hello"]]
        assert frames.send_to(router, b"w1", b"welcome")
        assert list(frames.receive_each(dealer)) == [b"welcome"]
        with pytest.raises(zmq.ZMQError):
            frames.send_to(router, b"w2", b"welcome")
        dealer.close(0)
        router.close(0)
