"""OpenAI's audio: what is said in a recording, as text, subtitles or with times.

What goes to the engine is the client's form, written anew, without the fields that say how the answer is to look: it is
always the whole transcript, and is written here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

import falcon
import msgspec

from gateway.api.common.request_fields import MAX_NAME_LENGTH
from gateway.bus.session import SupervisorSession
from gateway.http import bodies
from gateway.http.request_context import request_context
from gateway.requests import late_answer
from gateway.requests.inference import InferenceRequest, WholeAnswer
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import Code, Failure, invalid
from protocol.wire import form_data, transcripts
from protocol.wire.decoding import DECODE_ERRORS
from protocol.wire.form_data import FormPart
from protocol.wire.transcripts import RESPONSE_FORMATS, Transcript, language_code

TRANSCRIPTIONS: Final = "audio/transcriptions"
TRANSLATIONS: Final = "audio/translations"
GRANULARITIES: Final = ("word", "segment")
MAX_PROMPT_LENGTH: Final = 16_384
MAX_FIELD_BYTES: Final = 4_096
"""Bytes of a field that only the engine may know."""
_FILE: Final = "file"
_ANSWER_FIELDS: Final = frozenset({"response_format", "stream", "timestamp_granularities", "timestamp_granularities[]"})
_PADDINGS: Final = {"vtt": (b"NOTE still working\n\n", b"WEBVTT\n\n")}
"""Format → what may stand before an answer in it, and what it must begin with: WebVTT has comments, and no blank beginning."""
_decode: Final = msgspec.json.Decoder(Transcript).decode


class TranscriptionForm(msgspec.Struct):
    """What a client asks."""

    model: str
    response_format: str
    granularities: list[str]
    parts: list[FormPart]
    """What the engine is told, the recording last."""


def parse_form(parts: list[FormPart], endpoint: str) -> TranscriptionForm:
    """Return what a form asks; raises ``invalid_request`` naming the field that is wrong."""
    said: dict[str, str] = {}
    granularities: list[str] = []
    recordings: list[FormPart] = []
    for part in parts:
        if part.name == _FILE:
            recordings.append(part)
        elif part.filename:
            raise invalid(f"`{part.name[:80]}` is a file, and only `file` can be one", part.name[:80])
        elif part.name.removesuffix("[]") == "timestamp_granularities":
            granularities.append(_text(part))
        elif part.name in said:
            raise invalid(f"`{part.name[:80]}` is there twice", part.name[:80])
        else:
            said[part.name] = _text(part)
    form = said.get("response_format") or "json"
    if form not in RESPONSE_FORMATS:
        raise invalid(f"`response_format` must be one of {', '.join(RESPONSE_FORMATS)}", "response_format")
    _check_granularities(granularities, form)
    _check(said, endpoint)
    recording = _recording(recordings)
    fields = [FormPart(name, text.encode()) for name, text in _engine_fields(said)]
    return TranscriptionForm(said.get("model", ""), form, granularities, [*fields, recording])


def _text(part: FormPart) -> str:
    name = part.name[:80]
    try:
        text = part.text()
    except UnicodeDecodeError:
        raise invalid(f"`{name}` is no UTF-8", name) from None
    most = {"prompt": MAX_PROMPT_LENGTH, "model": MAX_NAME_LENGTH}.get(part.name, MAX_FIELD_BYTES)
    if len(text) > most or "\0" in text:
        raise invalid(f"`{name}` must be at most {most} characters without NUL", name)
    return text


def _check_granularities(wanted: list[str], form: str) -> None:
    name = "timestamp_granularities"
    if not set(wanted) <= set(GRANULARITIES):
        raise invalid(f"`{name}` can be {' and '.join(GRANULARITIES)}", name)
    if wanted and form != "verbose_json":
        raise invalid(f"`{name}` needs `response_format` to be verbose_json", name)


def _check(said: dict[str, str], endpoint: str) -> None:
    if said.get("stream", "").lower() not in ("", "false", "0"):
        raise invalid("`stream`: transcripts come whole", "stream")
    language = said.get("language", "")
    if language and endpoint == TRANSLATIONS:
        raise invalid("`language`: translations are into English, and the recording's is found out", "language")
    if language and not language_code(language):
        raise invalid("`language` must be a language that whisper models know: en, English, or auto", "language")
    temperature = said.get("temperature", "")
    if temperature and not 0 <= _number(temperature) <= 1:
        raise invalid("`temperature` must be a number from 0 to 1", "temperature")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _recording(found: list[FormPart]) -> FormPart:
    if not found:
        raise invalid("`file` is required", _FILE)
    if len(found) > 1:
        raise invalid("`file` is there twice: one recording at a time", _FILE)
    if not found[0].data:
        raise invalid("`file` is empty", _FILE)
    # What a client calls it is nobody's business; its end may tell a decoder something.
    return found[0]._replace(filename="recording" + PurePath(found[0].filename).suffix[:8])


def _engine_fields(said: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in said.items():
        if name == "language" and text:
            yield name, language_code(text)
        elif name not in _ANSWER_FIELDS and text:
            yield name, text


class TranscriptionsResource:
    """``POST audio/transcriptions``."""

    endpoint = TRANSCRIPTIONS

    def __init__(self, session: SupervisorSession) -> None:
        """Ask ``house``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer in the form that was asked for."""
        form = parse_form(bodies.read_form(req, self._session.settings.body_limit), self.endpoint)
        context = request_context(req.env)
        context.model = form.model
        request = InferenceRequest(self.endpoint, form.model, form_data.encode(form.parts), context.label)
        late_answer.respond(self._session, req, resp, request, _format(form))


def _format(form: TranscriptionForm) -> AnswerFormat:
    """Return how the transcript is written; raises nothing before there is one."""
    if form.response_format not in transcripts.TEXT_FORMATS:
        return AnswerFormat(falcon.MEDIA_JSON, lambda answer: _json(form, _transcript(form, answer)))
    kind, write = transcripts.TEXT_FORMATS[form.response_format]
    padding, opening = _PADDINGS.get(form.response_format, (b"\n", b""))
    return AnswerFormat(kind, lambda answer: write(_transcript(form, answer)).encode(), padding, opening)


def _transcript(form: TranscriptionForm, answer: WholeAnswer) -> Transcript:
    """Return the transcript; raises ``backend_error``, or ``unsupported_operation`` where times were asked for in vain."""
    try:
        transcript = _decode(answer.body)
    except DECODE_ERRORS as problem:
        message = "the engine's transcript was not understood"
        raise Failure(Code.BACKEND_ERROR, message, model=answer.model, detail=str(problem)).raised() from None
    if transcript.text and not transcript.segments and form.response_format in transcripts.TIMED_FORMATS:
        message = f"{answer.model} does not tell when anything was said: `response_format` can be json or text"
        raise Failure(Code.UNSUPPORTED, message, model=answer.model, param="response_format").raised()
    return transcript


def _json(form: TranscriptionForm, transcript: Transcript) -> bytes:
    verbose = form.response_format == "verbose_json"
    return msgspec.json.encode(
        transcripts.as_verbose_json(transcript, form.granularities) if verbose else transcripts.as_json(transcript)
    )


class TranslationsResource(TranscriptionsResource):
    """``POST audio/translations``: the same, into English."""

    endpoint = TRANSLATIONS
