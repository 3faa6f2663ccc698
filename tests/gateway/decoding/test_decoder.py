"""The decoder's process: its memory, its deadline, clients that share it and clients that leave."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import gevent
import pytest

from gateway.decoding import __main__ as decoder_main
from gateway.decoding import decoder_process
from gateway.decoding.decoder_process import (
    IMAGE,
    RECORDING,
    AbandonedError,
    DecoderSession,
    RefusedError,
)
from gateway.decoding.limits import MAX_DECODERS_OF_CLIENT
from protocol.failures import LemonbusError
from tests.gateway.decoding.conftest import BUDGET, CLIENT, FILE, LARGE, NOISE, decode, opened
from tests.support.media import written
from tests.support.processes import stop


def test_a_decoder_of_a_large_image_keeps_no_memory(decoder: DecoderSession) -> None:
    decode(decoder, written(LARGE.convert("RGB"), "PNG"))
    process = decoder_process._idle[-1]
    assert gevent.with_timeout(20, process.exit_code) == 0
    assert decode(decoder, written(NOISE, "PNG")).cost == 64 * 48


def test_a_decoder_is_used_again_however_much_memory_its_gateway_has_had(decoder: DecoderSession) -> None:
    """The kernel lets a new process inherit the peak of its parent's memory."""
    assert len(b"x" * 200 * 2**20) > 1024 * decoder_main.MAX_RESIDENT_KIB
    while decoder_process._idle:
        decoder_process._idle.pop().close()
    decode(decoder, FILE)
    used = decoder_process._idle[-1]
    decode(decoder, FILE)
    assert decoder_process._idle[-1] is used


def test_a_decoder_that_cannot_tell_its_memory_answers_and_ends_in_order(tmp_path: Path) -> None:
    """Its answer is sent: an error now would be told to the next request, which another decoder can answer."""
    (tmp_path / "status").write_bytes(b"Name:\tpython\n")  # without VmHWM, as some kernels write it
    program = (
        "import pathlib; from gateway.decoding import __main__ as decoder;"
        f"decoder.Path = lambda _: pathlib.Path({str(tmp_path / 'status')!r}); decoder.main()"
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(60)
        with subprocess.Popen([sys.executable, "-c", program], stdin=theirs) as process:
            try:
                ours.sendall(decoder_process.ORDER.pack(IMAGE, False, *BUDGET, 20.0, len(FILE)) + FILE)
                status, cost, *_ = decoder_process._ANSWER.unpack(
                    decoder_process.receive(ours, decoder_process._ANSWER.size)
                )
                assert (status, cost) == (decoder_process.DONE, NOISE.width * NOISE.height)
                assert process.wait(60) == 0
            finally:
                process.kill()


def test_an_image_that_takes_too_long_ends_the_decoder_and_nothing_else() -> None:
    session = DecoderSession(CLIENT)
    session._seconds_left = 0.1
    with pytest.raises(RefusedError, match="takes more than"):
        session.decode(IMAGE, BUDGET, written(LARGE.convert("RGB"), "PNG"))
    assert opened(decode(session, written(NOISE, "PNG"))).size == NOISE.size


def put_stopped_decoder() -> decoder_process._Decoder:
    """Make the next order endless: it goes to a decoder that is stopped."""
    stopped = decoder_process._Decoder()
    stop(stopped.pid)
    decoder_process._idle.append(stopped)
    return stopped


@pytest.mark.parametrize("data", [written(NOISE, "PNG"), bytes(2**24)], ids=["an answer", "space in a buffer"])
def test_a_stopped_decoder_is_killed_at_its_deadline_and_replaced(
    decoder: DecoderSession, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = put_stopped_decoder()
    with monkeypatch.context() as hurried:
        hurried.setattr(decoder_process, "DECODE_DEADLINE_S", 0.2)
        with pytest.raises(LemonbusError, match="not decoded within") as late:
            gevent.with_timeout(30, decode, decoder, data)
    assert late.value.failure.http_status == 503
    assert stopped.exit_code() == -signal.SIGKILL
    assert decode(decoder, written(NOISE, "PNG")).cost == NOISE.width * NOISE.height


def test_one_client_leaves_a_decoder_to_others() -> None:
    """Its orders are endless; another client's images are decoded anyway, and its own third one waits."""
    sessions = [DecoderSession("greedy") for _ in range(MAX_DECODERS_OF_CLIENT + 1)]
    for _ in range(MAX_DECODERS_OF_CLIENT):
        put_stopped_decoder()
    greenlets = [gevent.spawn(decode, session, FILE) for session in sessions]
    gevent.sleep(0)
    assert [session._decoder is not None for session in sessions] == [True] * MAX_DECODERS_OF_CLIENT + [False]
    assert decode(DecoderSession("other"), FILE).cost == NOISE.width * NOISE.height
    for session in reversed(sessions):
        session.abandon()
    gevent.joinall(greenlets, timeout=30)
    assert all(isinstance(greenlet.exception, AbandonedError) for greenlet in greenlets)
    assert not decoder_process._limiter._waiting
    assert not decoder_process._limiter._working


def test_decoding_ends_when_the_client_leaves_and_blocks_no_other_greenlet() -> None:
    ended = []

    def work(session: DecoderSession) -> None:
        try:
            session.decode(IMAGE, BUDGET, FILE)
        except AbandonedError:
            ended.append(session)

    session, process = DecoderSession(CLIENT), put_stopped_decoder()
    greenlet = gevent.spawn(work, session)
    for _ in range(20):
        gevent.sleep(0.01)  # other greenlets run
    assert session._decoder is process
    assert not ended
    session.abandon()
    greenlet.join(20)
    assert ended
    assert gevent.with_timeout(20, process.exit_code) == -signal.SIGKILL


def test_a_decoder_that_ended_while_it_was_idle_is_replaced(decoder: DecoderSession) -> None:
    decode(decoder, written(NOISE, "PNG"))
    idle = decoder_process._idle[-1]
    idle._socket.shutdown(1)
    assert gevent.with_timeout(20, idle.exit_code) == 0
    assert decode(decoder, written(NOISE, "PNG")).cost == 64 * 48


@pytest.mark.parametrize(("kind", "reader"), [(IMAGE, "decode_image"), (RECORDING, "measure_recording")])
def test_a_file_that_takes_too_much_memory_is_refused(kind: int, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(decoder_main, reader, fail)
    status, decoded = decoder_main.answer(kind, BUDGET, b"")
    assert (status, decoded.data) == (decoder_process.REFUSED, b"decoding it takes too much memory")
