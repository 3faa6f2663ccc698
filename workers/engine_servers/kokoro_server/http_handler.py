"""HTTP for one Kokoro model: OpenAI's ``/v1/audio/speech``, and ``/v1/audio/voices``.

The answer begins with the first piece of the text, so an error before it has its own status. An error after it ends the connection
before the last chunk: a reader sees that the sound is not whole.
"""

from __future__ import annotations

import json
import math
import socket
import sys
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from protocol.failures import DECODE_ERRORS
from protocol.wire.speech import (
    DEFAULT_FORMAT,
    MAX_INPUT_LENGTH,
    MAX_SOUND_S,
    MAX_SPEED,
    MAX_VOICE_LENGTH,
    MEDIA_TYPES,
    MIN_SPEED,
    SAMPLE_RATE,
    SPEECH,
    USAGE_TRAILER,
)
from workers.backends.kokoro.voice_names import VoiceError, language_of, voices_of
from workers.engine_servers.http_server import EngineHttpError, EngineHttpHandler, EngineHttpServer, not_found_error
from workers.engine_servers.kokoro_server.espeak import EspeakError
from workers.engine_servers.kokoro_server.model import SAMPLES_PER_FRAME, KokoroModel, frames, trimmed
from workers.engine_servers.kokoro_server.phonemizer import LanguageError, Phonemizer, TooLongError
from workers.engine_servers.kokoro_server.sound_encoder import SoundEncoder
from workers.files.errors import BrokenError

SEND_BUFFER_BYTES: Final = 128 * 1024
"""Sound that the kernel keeps for a reader that does not read: 3 s of PCM, 16 s of MP3."""

CHARACTERS_PER_S: Final = 14
"""How fast Kokoro speaks at speed 1."""
MAX_FRAMES: Final = MAX_SOUND_S * SAMPLE_RATE // SAMPLES_PER_FRAME


class SpeechBody(msgspec.Struct, kw_only=True):
    """A request; its other fields are ignored."""

    input: Annotated[str, Meta(min_length=1, max_length=MAX_INPUT_LENGTH)]
    voice: Annotated[str, Meta(max_length=MAX_VOICE_LENGTH)] = ""
    speed: Annotated[float, Meta(ge=MIN_SPEED, le=MAX_SPEED)] = 1.0
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = DEFAULT_FORMAT


_decode: Final = msgspec.json.Decoder(SpeechBody).decode


class KokoroHttpServer(EngineHttpServer):
    """The listener in front of one model."""

    def __init__(
        self, address: tuple[str, int], model: KokoroModel, phonemizer: Phonemizer, alias: str, key: str
    ) -> None:
        """Listen at once; raises OSError."""
        self.model, self.phonemizer = model, phonemizer
        super().__init__(address, KokoroHttpHandler, alias, key)

    def get_answer(self, path: str) -> Any:
        """Return the answer to a GET."""
        if path == "/props":
            return {"total_slots": 1, "build_info": self.model.build}
        if path == "/slots":
            return [{"id": 0, "is_processing": self.working}]
        if path == "/v1/audio/voices":
            return {"voices": self.model.voices.names}
        return super().get_answer(path)


class KokoroHttpHandler(EngineHttpHandler):
    """One connection."""

    server: KokoroHttpServer
    server_version = "kokoro-server"
    largest = 1024 * 1024

    def serve(self, path: str, body: bytes) -> None:
        """Speak."""
        if path != f"/v1/{SPEECH}":
            raise not_found_error()
        try:
            request = _decode(body)
            shares = voices_of(request.voice, self.server.model.voices.names)
        except (VoiceError, *DECODE_ERRORS) as problem:
            raise EngineHttpError(str(problem)) from None
        with self.server.engine_lock(self.client_disconnected):
            self._synthesize(request, shares)

    def _synthesize(self, request: SpeechBody, shares: list[tuple[str, float]]) -> None:
        """Send the sound, piece by piece; the first piece decides the status."""
        most = MAX_SOUND_S * CHARACTERS_PER_S * request.speed
        try:
            voice = self.server.model.mixed_voice(shares)
            pieces = self.server.phonemizer.pieces(request.input, language_of(shares), most)
            phonemes = next(pieces, "")
        except LanguageError as problem:
            raise EngineHttpError(str(problem), 501, "not_supported_error") from None
        except TooLongError as problem:
            minutes = math.ceil(problem.length / most * MAX_SOUND_S / 60)
            what = f"`input`: it would take about {minutes} minutes; a request may have {MAX_SOUND_S // 60}: send it in parts"
            raise EngineHttpError(what) from None
        except (BrokenError, EspeakError) as problem:
            raise EngineHttpError(str(problem), 500, "server_error") from None
        if not phonemes:
            raise EngineHttpError("`input`: there are no words in it")
        samples = self._samples(phonemes, voice, request.speed)
        self._begin_sound(MEDIA_TYPES[request.response_format])
        encoder = SoundEncoder(request.response_format)
        phoneme_count, frame_count = len(phonemes), frames(samples)
        try:
            self._send_sound(encoder.encode(samples))
            for phonemes in pieces:
                samples = self._samples(phonemes, voice, request.speed)
                phoneme_count += len(phonemes)
                frame_count += frames(samples)
                check_length(frame_count)
                self._send_sound(encoder.encode(samples))
            self._send_sound(encoder.end())
        except OSError:
            raise
        except Exception as problem:
            sys.stderr.write(f"[ERROR] an answer broke off: {type(problem).__name__}: {problem}\n")
            raise ConnectionAbortedError from problem
        counts = {"prompt_tokens": phoneme_count, "completion_tokens": frame_count}
        self.end_stream(USAGE_TRAILER, json.dumps({**counts, "total_tokens": phoneme_count + frame_count}))

    def _begin_sound(self, media_type: str) -> None:
        # A reader that does not keep up makes this server wait, for as long as the reader wants, with little sound made ahead.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.connection.settimeout(None)
        self.begin_stream(media_type, USAGE_TRAILER)

    def _samples(self, phonemes: str, voice: Any, speed: float) -> Any:
        return trimmed(self.server.model.synthesize(phonemes, voice, speed, self.client_disconnected))

    def _send_sound(self, data: bytes) -> None:
        if data:  # an empty part would end the stream
            self.send(data)

    def failure(self, problem: Exception) -> EngineHttpError:
        """Return an error of the library as its client sees it."""
        reason = (str(problem).splitlines() or [""])[0][:300]
        sys.stderr.write(f"[ERROR] a request failed: {type(problem).__name__}: {reason}\n")
        return EngineHttpError(f"ONNX Runtime failed: {reason}", 500, "server_error")


def check_length(frame_count: int) -> None:
    """Raise OverflowError for an answer that has become longer than its text suggested."""
    if frame_count > MAX_FRAMES:
        raise OverflowError(f"it has more than {MAX_SOUND_S} s of sound")
