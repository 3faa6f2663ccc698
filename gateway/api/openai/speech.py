"""OpenAI's speech: a text becomes sound, which is sent from its first sentence on. LocalAI's and ElevenLabs's names for it are aliases.

Engines answer with the bytes of a file in the requested form. With ``stream_format`` "sse", these bytes are in events.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common import server_sent_events as sse
from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.inference.stream_writer import ByteWriter, EventStreamWriter
from protocol.failures import invalid
from protocol.messages.events import Outcome
from protocol.wire.speech import (
    DEFAULT_FORMAT,
    MAX_INPUT_LENGTH,
    MAX_SPEED,
    MAX_VOICE_LENGTH,
    MEDIA_TYPES,
    MIN_SPEED,
    SPEECH,
)

SoundFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
VoiceName = Annotated[str, Meta(min_length=1, max_length=MAX_VOICE_LENGTH, pattern="^[A-Za-z0-9_.,:+() -]+$")]
SpokenText = Annotated[str, Meta(min_length=1, max_length=MAX_INPUT_LENGTH)]
Speed = Annotated[float, Meta(ge=MIN_SPEED, le=MAX_SPEED)]


class VoiceObject(msgspec.Struct):
    """A voice, in OpenAI's other form."""

    id: VoiceName


class SpeechRequest(msgspec.Struct, kw_only=True):
    """``POST audio/speech``."""

    input: SpokenText
    model: str | None = None
    voice: VoiceName | VoiceObject | None = None
    """A voice of the model, a name of OpenAI's, or several as ``a+b`` or ``a(2)+b(1)``."""
    speed: Speed | None = None
    response_format: SoundFormat | None = None
    stream_format: Literal["audio", "sse"] | None = None
    instructions: Annotated[str, Meta(max_length=MAX_INPUT_LENGTH)] | None = None
    """How to speak. Models without this ignore it, which the header ``Warning`` then says."""


class SpeechEventWriter(EventStreamWriter):
    """Writes OpenAI's events: pieces of the sound in base64, then the counts."""

    def __init__(self) -> None:
        """Begin an answer."""
        self._usage: dict[str, int] = {}

    def events(self, events: bytes) -> bytes:
        """Return the event of a piece of the sound."""
        return _event({"type": "speech.audio.delta", "audio": base64.b64encode(events).decode()})

    def cost(self, outcome: Outcome) -> None:
        """Note the counts."""
        counts = {"input_tokens": outcome.prompt_tokens, "output_tokens": outcome.output_tokens}
        self._usage = {**counts, "total_tokens": sum(counts.values())}

    def end(self) -> bytes:
        """Return the last event."""
        return _event({"type": "speech.audio.done", "usage": self._usage})


def _event(body: dict[str, Any]) -> bytes:
    return sse.unnamed_event(msgspec.json.encode(body))


class SpeechResource(InferenceResource[SpeechRequest]):
    """``POST audio/speech``."""

    request_type = SpeechRequest

    def translate(self, _req: falcon.Request, request: SpeechRequest, _data: bytes) -> TranslatedRequest:
        """Check the request and write the one for the engine."""
        voice = request.voice.id if isinstance(request.voice, VoiceObject) else request.voice
        return speech(
            request.input,
            model=request.model,
            voice=voice,
            speed=request.speed,
            form=request.response_format or DEFAULT_FORMAT,
            events=request.stream_format == "sse",
            instructions=request.instructions,
        )


class TtsRequest(msgspec.Struct, kw_only=True):
    """``POST /tts``, as LocalAI has it."""

    input: SpokenText
    model: str | None = None
    voice: VoiceName | None = None
    speed: Speed | None = None
    response_format: SoundFormat | None = None


class TtsResource(InferenceResource[TtsRequest]):
    """``POST /tts``: as LocalAI, it answers WAV unless another form is requested."""

    request_type = TtsRequest

    def translate(self, _req: falcon.Request, request: TtsRequest, _data: bytes) -> TranslatedRequest:
        """Write the request for the engine."""
        form = request.response_format or "wav"
        return speech(request.input, model=request.model, voice=request.voice, speed=request.speed, form=form)


class VoiceSettings(msgspec.Struct, kw_only=True):
    """Those of them that have an effect."""

    speed: Speed | None = None


class TextToSpeechRequest(msgspec.Struct, kw_only=True):
    """``POST text-to-speech/{voice}``, as ElevenLabs and LocalAI have it."""

    text: SpokenText
    model_id: str | None = None
    voice_settings: VoiceSettings | None = None


class TextToSpeechResource(InferenceResource[TextToSpeechRequest]):
    """``POST text-to-speech/{voice}``: ``output_format`` in the query begins with a form (``pcm_24000``)."""

    request_type = TextToSpeechRequest

    def on_post(self, req: falcon.Request, resp: falcon.Response, voice: str = "") -> None:
        """Answer; ``voice`` is also in the path of the request."""
        del voice
        super().on_post(req, resp)

    def translate(self, req: falcon.Request, request: TextToSpeechRequest, _data: bytes) -> TranslatedRequest:
        """Check the request and write the one for the engine."""
        try:
            voice = msgspec.convert(req.path.rstrip("/").rpartition("/")[2], VoiceName)
        except msgspec.ValidationError:
            raise invalid("`voice` in the path is not the name of a voice", "voice") from None
        form = (req.get_param("output_format") or DEFAULT_FORMAT).partition("_")[0]
        if form not in MEDIA_TYPES:
            raise invalid(f"`output_format` must begin with one of {', '.join(MEDIA_TYPES)}", "output_format")
        speed = request.voice_settings.speed if request.voice_settings else None
        return speech(request.text, model=request.model_id, voice=voice, speed=speed, form=form)


def speech(
    text: str,
    *,
    model: str | None,
    voice: str | None,
    form: str,
    speed: float | None = None,
    events: bool = False,
    instructions: str | None = None,
) -> TranslatedRequest:
    """Return the request for an engine; raises ``invalid_request`` for a text without anything to say."""
    if not text.strip():
        raise invalid("`input` has nothing to say", "input")
    fields = {
        "model": model or "",
        "input": text,
        "voice": voice,
        "speed": speed,
        "response_format": form,
        "instructions": instructions,
    }
    body = msgspec.json.encode({name: value for name, value in fields.items() if value is not None})
    writer = SpeechEventWriter() if events else ByteWriter(MEDIA_TYPES[form])
    return TranslatedRequest(SPEECH, model or "", body, writer=writer)
