"""The settings of a session: how clients send them, in three forms, and how they are shown. Pure.

The forms: OpenAI's (``audio.input``), OpenAI's beta (``input_audio_format``), and Lemonade's (``model`` and ``turn_detection`` alone).
An update changes only what it has. What is declared here is decoded and in the OpenAPI document; other fields are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.api.common.inference import transcription_form
from gateway.api.common.request_fields import MAX_NAME_LENGTH
from gateway.api.openai.realtime.audio_format import LEMONADE_RATE_HZ, OPENAI_RATE_HZ, PCM, AudioFormat, audio_format
from gateway.api.openai.realtime.speech_detection import TurnDetection
from gateway.http.bodies import body_decoding
from protocol.failures import Code, Failure, invalid
from protocol.wire.form_data import FormPart

SERVER_VAD: Final = "server_vad"
_TRANSCRIPTION: Final = "transcription"
SPEECH_ADVICE: Final = (
    "this server transcribes live audio, and answers it with nothing: send transcripts to chat/completions or responses, "
    "and their answers to audio/speech"
)
Milliseconds = Annotated[int, Meta(ge=0, le=10_000)]
Text = Annotated[str, Meta(max_length=transcription_form.MAX_PROMPT_LENGTH)]


class TurnDetectionFields(msgspec.Struct):
    """How turns are found. `semantic_vad` is not served."""

    type: str = SERVER_VAD
    threshold: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    prefix_padding_ms: Milliseconds | UnsetType = UNSET
    silence_duration_ms: Milliseconds | UnsetType = UNSET


class TranscriberFields(msgspec.Struct):
    """What transcribes, and what helps it."""

    model: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] | UnsetType = UNSET
    language: Text | UnsetType = UNSET
    prompt: Text | UnsetType = UNSET


class FormatFields(msgspec.Struct):
    """The format of the audio that is sent."""

    type: str = PCM
    rate: int | UnsetType = UNSET


class InputFields(msgspec.Struct):
    """OpenAI's settings of the audio that comes in. `turn_detection: null`: the client commits each turn."""

    format: FormatFields | UnsetType = UNSET
    transcription: TranscriberFields | UnsetType = UNSET
    turn_detection: TurnDetectionFields | UnsetType | None = UNSET


class AudioFields(msgspec.Struct):
    """OpenAI's settings of audio."""

    input: InputFields | UnsetType = UNSET


class SessionFields(msgspec.Struct):
    """The `session` of an update, in any of the forms."""

    type: Literal["transcription", "realtime"] | UnsetType = UNSET
    audio: AudioFields | UnsetType = UNSET
    model: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] | UnsetType = UNSET
    input_audio_format: str | UnsetType = UNSET
    input_audio_transcription: TranscriberFields | UnsetType = UNSET
    turn_detection: TurnDetectionFields | UnsetType | None = UNSET


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is in effect."""

    model: str = ""
    """Empty: the model that was used last."""
    language: str = ""
    prompt: str = ""
    format: AudioFormat
    format_named: bool = False
    """Whether the client has named it."""
    turn_detection: TurnDetection | None = TurnDetection()

    def form(self, recording: bytes) -> list[FormPart]:
        """Return the form that has a WAV file transcribed."""
        texts = {"model": self.model, "language": self.language, "prompt": self.prompt, "stream": "true"}
        parts = [FormPart(name, text.encode()) for name, text in texts.items() if text]
        return [*parts, FormPart("file", recording, "turn.wav")]


def first_settings(model: str, *, openai: bool) -> SessionSettings:
    """Return the settings of a new session. ``openai``: its client says that it is OpenAI's, whose audio has another rate."""
    return SessionSettings(model=model, format=AudioFormat(PCM, OPENAI_RATE_HZ if openai else LEMONADE_RATE_HZ))


def updated_settings(settings: SessionSettings, session: dict[str, Any], *, beta: bool) -> SessionSettings:
    """Return the settings after an update. ``session``: its field. ``beta``: it is ``transcription_session.update``.

    Raises ``invalid_request`` naming the wrong field, and ``unsupported_operation`` for what is not served.
    """
    fields = body_decoding.convert(session, SessionFields, "session")
    if fields.type == "realtime":
        raise Failure(
            Code.UNSUPPORTED, f"`session.type` must be {_TRANSCRIPTION}: {SPEECH_ADVICE}", param="session.type"
        ).raised()
    given = fields.audio.input if fields.audio is not UNSET and fields.audio.input is not UNSET else InputFields()
    changed: dict[str, Any] = {} if fields.model is UNSET else {"model": fields.model}
    for texts in (fields.input_audio_transcription, given.transcription):
        if texts is not UNSET:
            changed |= {name: text for name, text in msgspec.structs.asdict(texts).items() if text is not UNSET}
    named = _named_format(fields, given)
    openai = (
        beta or fields.type is not UNSET or fields.audio is not UNSET or fields.input_audio_transcription is not UNSET
    )
    if named is not None:
        changed |= {"format": named, "format_named": True}
    elif openai and not settings.format_named:
        changed["format"] = AudioFormat(PCM, OPENAI_RATE_HZ)
    for detection, parent in ((fields.turn_detection, ""), (given.turn_detection, "audio.input.")):
        if detection is not UNSET:
            where = f"session.{parent}turn_detection"
            changed["turn_detection"] = _turn_detection(settings.turn_detection, detection, where)
    settings = msgspec.structs.replace(settings, **changed)
    transcription_form.parse_form(settings.form(b"-"), transcription_form.TRANSCRIPTIONS)  # raises for a wrong text
    return settings


def _named_format(fields: SessionFields, given: InputFields) -> AudioFormat | None:
    name, rate, where = fields.input_audio_format, None, "session.input_audio_format"
    if given.format is not UNSET:
        name, where = given.format.type, "session.audio.input.format"
        rate = None if given.format.rate is UNSET else given.format.rate
    if name is UNSET:
        return None
    try:
        return audio_format(name, rate)
    except ValueError as problem:
        raise invalid(f"`{where}`: {problem}", where) from None


def _turn_detection(
    present: TurnDetection | None, given: TurnDetectionFields | None, where: str
) -> TurnDetection | None:
    if given is None:
        return None
    if given.type != SERVER_VAD:
        message = f"`{where}.type` must be {SERVER_VAD}, or `turn_detection` null"
        raise Failure(Code.UNSUPPORTED, message, param=f"{where}.type").raised()
    named = {
        name: value for name, value in msgspec.structs.asdict(given).items() if value is not UNSET and name != "type"
    }
    return msgspec.structs.replace(present or TurnDetection(), **named)


def shown_settings(settings: SessionSettings, session_id: str, *, beta: bool) -> dict[str, Any]:
    """Return the session as its events show it, in OpenAI's form or that of its beta."""
    detection = settings.turn_detection
    turns = {"type": SERVER_VAD, **msgspec.structs.asdict(detection)} if detection is not None else None
    texts = {"model": settings.model, "language": settings.language or None, "prompt": settings.prompt}
    session = {
        "id": session_id,
        "object": "realtime.transcription_session",
        "type": _TRANSCRIPTION,
        "model": settings.model,
    }
    if beta:
        return session | {
            "input_audio_format": settings.format.short_name,
            "input_audio_noise_reduction": None,
            "input_audio_transcription": texts,
            "turn_detection": turns,
            "include": None,
        }
    given = {"format": settings.format, "noise_reduction": None, "transcription": texts, "turn_detection": turns}
    return session | {"audio": {"input": given}, "include": None}
