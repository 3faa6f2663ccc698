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

from gateway import answers, bodies
from gateway.answers import Question
from gateway.dialects.naming import LONGEST_NAME
from gateway.house import House
from gateway.visit import of
from protocol import forms, transcripts
from protocol.decoding import UNREADABLE
from protocol.failures import Code, Failure, invalid
from protocol.forms import Part
from protocol.transcripts import FORMS, Transcript, language_code

TRANSCRIPTIONS: Final = "audio/transcriptions"
TRANSLATIONS: Final = "audio/translations"
GRANULARITIES: Final = ("word", "segment")
LONGEST_PROMPT: Final = 16_384
LONGEST_FIELD: Final = 4_096
"""Bytes of a field that only the engine may know."""
_FILE: Final = "file"
_OF_THE_ANSWER: Final = frozenset({"response_format", "stream", "timestamp_granularities", "timestamp_granularities[]"})
_decode: Final = msgspec.json.Decoder(Transcript).decode


class Form(msgspec.Struct):
    """What a client asks."""

    model: str
    response_format: str
    granularities: list[str]
    parts: list[Part]
    """What the engine is told, the recording last."""


def read(parts: list[Part], endpoint: str) -> Form:
    """Return what a form asks; raises ``invalid_request`` naming the field that is wrong."""
    said: dict[str, str] = {}
    granularities: list[str] = []
    recordings: list[Part] = []
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
    if form not in FORMS:
        raise invalid(f"`response_format` must be one of {', '.join(FORMS)}", "response_format")
    _check_granularities(granularities, form)
    _check(said, endpoint)
    recording = _recording(recordings)
    fields = [Part(name, text.encode()) for name, text in _told(said)]
    return Form(said.get("model", ""), form, granularities, [*fields, recording])


def _text(part: Part) -> str:
    name = part.name[:80]
    try:
        text = part.text()
    except UnicodeDecodeError:
        raise invalid(f"`{name}` is no UTF-8", name) from None
    most = {"prompt": LONGEST_PROMPT, "model": LONGEST_NAME}.get(part.name, LONGEST_FIELD)
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


def _recording(found: list[Part]) -> Part:
    if not found:
        raise invalid("`file` is required", _FILE)
    if len(found) > 1:
        raise invalid("`file` is there twice: one recording at a time", _FILE)
    if not found[0].data:
        raise invalid("`file` is empty", _FILE)
    # What a client calls it is nobody's business; its end may tell a decoder something.
    return found[0]._replace(filename="recording" + PurePath(found[0].filename).suffix[:8])


def _told(said: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in said.items():
        if name == "language" and text:
            yield name, language_code(text)
        elif name not in _OF_THE_ANSWER and text:
            yield name, text


class Transcriptions:
    """``POST audio/transcriptions``."""

    endpoint = TRANSCRIPTIONS

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer in the form that was asked for."""
        form = read(bodies.read_form(req, self._house.settings.body_limit), self.endpoint)
        visit = of(req.env)
        visit.model = form.model
        body = forms.written(form.parts)
        answer = answers.whole(self._house, req.env, Question(self.endpoint, form.model, body, visit.label))
        visit.model = answer.model
        try:
            heard = _decode(answer.body)
        except UNREADABLE as problem:
            message = "the engine's transcript was not understood"
            raise Failure(Code.BACKEND_ERROR, message, model=answer.model, detail=str(problem)).raised() from None
        if heard.text and not heard.segments and form.response_format in transcripts.TIMED:
            message = f"{answer.model} does not tell when anything was said: `response_format` can be json or text"
            raise Failure(Code.UNSUPPORTED, message, model=answer.model, param="response_format").raised()
        if form.response_format in transcripts.WRITTEN:
            resp.content_type, write = transcripts.WRITTEN[form.response_format]
            resp.data = write(heard).encode()
            return
        resp.content_type = falcon.MEDIA_JSON
        verbose = form.response_format == "verbose_json"
        said = transcripts.verbose(heard, form.granularities) if verbose else transcripts.brief(heard)
        resp.data = msgspec.json.encode(said)


class Translations(Transcriptions):
    """``POST audio/translations``: the same, into English."""

    endpoint = TRANSLATIONS
