"""Requests and answers of OpenAI's API as servers of any make take and give them. Pure.

The internal format is OpenAI's, so a request passes through as it is. What differs: the model's name, fields that only this
server's own engines understand, forms, and the shape of transcripts.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS, invalid
from protocol.wire import form_data
from protocol.wire.form_data import JSON_FIELDS_PART, FormPart
from protocol.wire.transcripts import Transcript, TranscriptSegment, TranscriptWord
from workers.stream.usage import is_usage

_INTERNAL_FIELDS: Final = frozenset({"return_stop_reason", "return_progress", "timings_per_token"})
"""Fields of the internal format that no other server knows."""
_NULL: Final = msgspec.Raw(b"null")
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_fields: Final = msgspec.json.Decoder(dict[str, Any]).decode
Fields = dict[str, msgspec.Raw]


def request_fields(body: bytes, model: str) -> Fields:
    """Return the fields of a JSON request for a server that calls the model ``model``; raises ``DECODE_ERRORS``."""
    fields = {name: raw for name, raw in _OBJECT.decode(body).items() if raw != _NULL and name not in _INTERNAL_FIELDS}
    fields["model"] = raw_json(model)
    return fields


def raw_json(value: Any) -> msgspec.Raw:
    """Return a value as JSON."""
    return msgspec.Raw(msgspec.json.encode(value))


def audio_form(body: bytes, model: str) -> bytes:
    """Return the form of a recording that asks for a transcript with all times; raises ``invalid_request``."""
    own = {"model", "response_format", "stream", "timestamp_granularities", "timestamp_granularities[]"}
    asked = [FormPart("model", model.encode()), FormPart("response_format", b"verbose_json")]
    asked += [FormPart("timestamp_granularities[]", each) for each in (b"segment", b"word")]
    return form_data.encode([*asked, *(part for part in _parts(body) if part.name not in own)])


def image_form(body: bytes, model: str) -> bytes:
    """Return OpenAI's form of pictures made from pictures; raises ``invalid_request``."""
    parts = _parts(body)
    given = next((part.data for part in parts if part.name == JSON_FIELDS_PART), b"{}")
    try:
        fields: dict[str, Any] = {**_fields(given), "model": model, "response_format": "b64_json"}
    except DECODE_ERRORS as problem:
        raise invalid(f"the request is not a form: {problem}") from None
    texts = [FormPart(name, _text(value).encode()) for name, value in fields.items() if value is not None]
    files = [part for part in parts if part.name != JSON_FIELDS_PART]
    several = sum(part.name == "image" for part in files) > 1
    return form_data.encode([*texts, *(_renamed(part, several=several) for part in files)])


def _parts(body: bytes) -> list[FormPart]:
    try:
        return form_data.parse(form_data.boundary_from_body(body), body)
    except ValueError as problem:
        raise invalid(f"the request is not a form: {problem}") from None


def _renamed(part: FormPart, *, several: bool) -> FormPart:
    return part._replace(name="image[]") if several and part.name == "image" else part


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# Answers.


class _Segment(msgspec.Struct):
    start: float = 0.0
    end: float = 0.0
    text: str = ""
    tokens: list[int] | None = None
    temperature: float | None = None
    avg_logprob: float | None = None
    no_speech_prob: float | None = None
    words: list[TranscriptWord] | None = None


class _Transcription(msgspec.Struct):
    text: str
    task: str | None = None
    language: str | None = None
    duration: float | None = None
    segments: list[_Segment] | None = None
    words: list[TranscriptWord] | None = None


_transcription: Final = msgspec.json.Decoder(_Transcription, strict=False).decode


def transcript(answer: bytes) -> bytes:
    """Return a transcription as a :class:`~protocol.wire.transcripts.Transcript`; raises ``DECODE_ERRORS`` for anything else."""
    given = _transcription(answer)
    segments = [
        TranscriptSegment(
            number,
            each.start,
            each.end,
            each.text,
            each.tokens or [],
            each.temperature,
            each.avg_logprob,
            each.no_speech_prob,
            each.words or [],
        )
        for number, each in enumerate(given.segments or [])
    ]
    for word in given.words or []:
        within = next((each for each in reversed(segments) if word.start >= each.start), None)
        if within is not None:
            within.words.append(word)
    return msgspec.json.encode(
        Transcript(
            task=given.task or "transcribe",
            language=given.language or "",
            duration=given.duration or 0.0,
            text=given.text.strip(),
            segments=segments,
        )
    )


def whole_answer(answer: bytes, model: str) -> bytes:
    """Return a whole JSON answer with ``model`` as the model's name, in the compact form of JSON that the filters search.

    Raises ``DECODE_ERRORS`` for anything that is not a JSON object.
    """
    fields = _fields(answer)
    if "model" in fields:
        fields["model"] = model
    if not is_usage(fields.get("usage")):
        fields.pop("usage", None)
    for choice in fields.get("choices") or []:
        message = choice.get("message") if isinstance(choice, dict) else None
        if isinstance(message, dict) and "reasoning" in message and "reasoning_content" not in message:
            message["reasoning_content"] = message.pop("reasoning")
    for result in fields.get("results") or []:
        if isinstance(result, dict) and "relevance_score" not in result and "score" in result:
            result["relevance_score"] = result["score"]
    return msgspec.json.encode(fields)


class _Listed(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _ListedModels(msgspec.Struct):
    data: list[_Listed]


_listed: Final = msgspec.json.Decoder(_ListedModels).decode


def listed_models(answer: bytes) -> dict[str, int]:
    """Return the models in an answer of ``/v1/models``: name → tokens of its context, 0 if the server does not say."""
    try:
        return {each.id: each.max_model_len or 0 for each in _listed(answer).data}
    except DECODE_ERRORS:
        return {}
