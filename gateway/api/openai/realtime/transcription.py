"""One turn as a transcription request of its own: its request id, its place in limits and usage, its log line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import gevent
import msgspec

from gateway.api.common.inference import transcription_form
from gateway.api.openai.realtime.audio_format import wav
from gateway.api.openai.realtime.settings import SessionSettings
from gateway.bus.session import SupervisorSession
from gateway.http.body_memory import HeldBody
from gateway.http.client_disconnect import CLIENT_LEFT
from gateway.http.connections import access_log
from gateway.http.request_context import CONTEXT_KEY, MEMORY_KEY, RequestContext, request_context
from gateway.internal_errors import INTERNAL_ERRORS, INTERNAL_FAILURE
from gateway.requests.answer_stream import AnswerStream
from gateway.requests.inference_request import InferenceRequest
from gateway.websockets import handshake
from protocol.failures import DECODE_ERRORS, Code, Failure, LemonbusError, not_understood
from protocol.wire import form_data

ROUTE: Final = f"/v1/{transcription_form.TRANSCRIPTIONS}"
"""What a turn counts as."""
_KEPT_FIELDS: Final = ("REMOTE_ADDR", "HTTP_VIA", "PATH_INFO", MEMORY_KEY)
"""What a request of a turn has of its session's."""
_DATA: Final = b"data: "


class CommittedTurn(NamedTuple):
    """A turn that waits for its transcription."""

    item_id: str
    label: str
    """Its request id."""
    samples: bytes
    settings: SessionSettings
    held: HeldBody
    """Its part of the memory for bodies."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.samples) / 2 / self.settings.format.rate


class _TranscriptEvent(msgspec.Struct):
    type: str = ""
    delta: str = ""
    text: str = ""


_decode: Final = msgspec.json.Decoder(_TranscriptEvent).decode


def turn_environment(env: dict[str, Any], turn: CommittedTurn) -> dict[str, Any]:
    """Return the WSGI environment of a turn's request: with the session's key and rights, and without its connection."""
    given = request_context(env)
    context = RequestContext(turn.label)
    context.api_key, context.keys_needed = given.api_key, given.keys_needed
    context.withdrawal, context.download_refusal = given.withdrawal, given.download_refusal
    context.route, context.model, context.held_body = ROUTE, turn.settings.model, turn.held
    return {CONTEXT_KEY: context, **{name: env[name] for name in _KEPT_FIELDS if name in env}}


def transcribe(
    session: SupervisorSession, env: dict[str, Any], turn: CommittedTurn, on_delta: Callable[[str], None]
) -> str:
    """Return the transcript of a turn; ``on_delta`` gets each further piece of it. ``env``: see :func:`turn_environment`.

    Raises ``LemonbusError``. If the greenlet is killed, the request ends at the engine.
    """
    context = request_context(env)
    failure: Failure | None = None
    try:
        return _transcript(session, env, turn, on_delta)
    except LemonbusError as problem:
        failure = problem.failure
        raise
    except (gevent.GreenletExit, *handshake.closed()):
        failure = Failure(Code.CANCELLED, CLIENT_LEFT)
        raise
    except Exception as problem:
        INTERNAL_ERRORS.log(problem, "a turn was not transcribed", request_id=turn.label)
        failure = INTERNAL_FAILURE
        raise failure.raised() from problem
    finally:
        context.failure = failure
        _count(session, env, context, turn)


def _transcript(
    session: SupervisorSession, env: dict[str, Any], turn: CommittedTurn, on_delta: Callable[[str], None]
) -> str:
    recording = wav(turn.samples, turn.settings.format.rate)
    form = transcription_form.parse_form(turn.settings.form(recording), transcription_form.TRANSCRIPTIONS)
    body = form_data.encode(form.parts)
    request = InferenceRequest(transcription_form.TRANSCRIPTIONS, form.model, body, label=turn.label, stream=True)
    text = ""
    with AnswerStream(session, env, request) as answer:
        for events in answer:
            for line in events.split(b"\n"):
                if not line.startswith(_DATA):
                    continue
                try:
                    event = _decode(line.removeprefix(_DATA))
                except DECODE_ERRORS as problem:
                    raise not_understood(problem, answer.model) from None
                text = event.text or text
                if event.delta:
                    on_delta(event.delta)
        request_context(env).model = answer.model
    return text.strip()


def _count(session: SupervisorSession, env: dict[str, Any], context: RequestContext, turn: CommittedTurn) -> None:
    """Count the end of a turn, and log it, as for any request."""
    counts, key, failure, seconds = session.request_counts, context.api_key, context.failure, context.elapsed()
    status = failure.http_status if failure is not None else 200
    code = failure.code.value if failure is not None else ""
    counts.observe(ROUTE, status, seconds, code, context.inference)
    counts.ended(context, ROUTE, status, seconds, complete=failure is None)
    if code:
        counts.failed(ROUTE, key.name if key is not None else "", context.model, code, answered=context.answered)
    access_log.write_turn(context, env, status, seconds, audio_s=turn.seconds)
