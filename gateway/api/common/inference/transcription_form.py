"""The form of a transcription request: its fields are checked, and the form for the engine is written. Pure.

The engine gets the client's form without the fields about the answer's format.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

import msgspec

from gateway.api.common.request_fields import MAX_NAME_LENGTH
from protocol.failures import invalid
from protocol.wire.form_data import FormPart
from protocol.wire.transcripts import RESPONSE_FORMATS, language_code

TRANSCRIPTIONS: Final = "audio/transcriptions"
TRANSLATIONS: Final = "audio/translations"
GRANULARITIES: Final = ("word", "segment")
MAX_PROMPT_LENGTH: Final = 16_384
USED_PROMPT_BYTES: Final = 2_048
"""Bytes from the end of a prompt that engines get. Models take 224 tokens from there, and whisper.cpp splits all of it by recursion."""
MAX_FIELD_BYTES: Final = 4_096
"""Bytes of a field that is passed on unread."""
_FILE: Final = "file"
_STREAMED_FORMATS: Final = ("json", "text")
"""Formats that can be streamed: the events of a stream have texts and no times."""
_ANSWER_FIELDS: Final = frozenset({"response_format", "stream", "timestamp_granularities", "timestamp_granularities[]"})


class TranscriptionForm(msgspec.Struct):
    """A checked request."""

    model: str
    response_format: str
    granularities: list[str]
    stream: bool
    parts: list[FormPart]
    """Return the form for the engine, with the recording last."""


def parse_form(parts: list[FormPart], endpoint: str) -> TranscriptionForm:
    """Return the checked request; raises ``invalid_request`` naming the wrong field."""
    texts: dict[str, str] = {}
    granularities: list[str] = []
    recordings: list[FormPart] = []
    for part in parts:
        if part.name == _FILE:
            recordings.append(part)
        elif part.filename:
            raise invalid(f"`{part.name[:80]}` is a file; only `file` may be one", part.name[:80])
        elif part.name.removesuffix("[]") == "timestamp_granularities":
            granularities.append(_text(part))
        elif part.name in texts:
            raise invalid(f"`{part.name[:80]}` is given twice", part.name[:80])
        else:
            texts[part.name] = _text(part)
    form = texts.get("response_format") or "json"
    if form not in RESPONSE_FORMATS:
        raise invalid(f"`response_format` must be one of {', '.join(RESPONSE_FORMATS)}", "response_format")
    _check_granularities(granularities, form)
    _check(texts, endpoint)
    stream = _stream(texts, form, endpoint)
    recording = _recording(recordings)
    fields = [FormPart(name, text.encode()) for name, text in _engine_fields(texts)]
    return TranscriptionForm(texts.get("model", ""), form, granularities, stream, [*fields, recording])


def _text(part: FormPart) -> str:
    name = part.name[:80]
    try:
        text = part.text()
    except UnicodeDecodeError:
        raise invalid(f"`{name}` is not UTF-8", name) from None
    limit = {"prompt": MAX_PROMPT_LENGTH, "model": MAX_NAME_LENGTH}.get(part.name, MAX_FIELD_BYTES)
    if len(text) > limit or "\0" in text:
        raise invalid(f"`{name}` must be at most {limit} characters without NUL", name)
    return text


def _check_granularities(wanted: list[str], form: str) -> None:
    name = "timestamp_granularities"
    if not set(wanted) <= set(GRANULARITIES):
        raise invalid(f"`{name}` can be {' and '.join(GRANULARITIES)}", name)
    if wanted and form != "verbose_json":
        raise invalid(f"`{name}` needs `response_format` to be verbose_json", name)


def _check(texts: dict[str, str], endpoint: str) -> None:
    language = texts.get("language", "")
    if language and endpoint == TRANSLATIONS:
        raise invalid(
            "`language`: translations are into English, and the language of the recording is detected", "language"
        )
    if language and not language_code(language):
        raise invalid("`language` must be a language that whisper models know: en, English, or auto", "language")
    temperature = texts.get("temperature", "")
    if temperature and not 0 <= _number(temperature) <= 1:
        raise invalid("`temperature` must be a number from 0 to 1", "temperature")


def _stream(texts: dict[str, str], form: str, endpoint: str) -> bool:
    """Return whether the client asked for a stream of events."""
    text = texts.get("stream", "").lower()
    if text not in ("", "0", "1", "false", "true"):
        raise invalid("`stream` must be true or false", "stream")
    wanted = text in ("1", "true")
    if wanted and endpoint == TRANSLATIONS:
        raise invalid("`stream`: translations are not streamed", "stream")
    if wanted and form not in _STREAMED_FORMATS:
        raise invalid(f"`stream` needs `response_format` to be {' or '.join(_STREAMED_FORMATS)}", "stream")
    return wanted


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _recording(found: list[FormPart]) -> FormPart:
    if not found:
        raise invalid("`file` is required", _FILE)
    if len(found) > 1:
        raise invalid("`file` is given twice: send one recording at a time", _FILE)
    if not found[0].data:
        raise invalid("`file` is empty", _FILE)
    # The client's name for the file is not passed on, except for its suffix, which may help a decoder.
    return found[0]._replace(filename="recording" + PurePath(found[0].filename).suffix[:8])


def _engine_fields(texts: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in texts.items():
        if name == "language" and text:
            yield name, language_code(text)
        elif name == "prompt" and text:
            yield name, text.encode()[-USED_PROMPT_BYTES:].decode(errors="ignore")
        elif name not in _ANSWER_FIELDS and text:
            yield name, text
