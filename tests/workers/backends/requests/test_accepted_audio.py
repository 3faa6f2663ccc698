"""Third-party engines only get recordings that the gateway has measured."""

from __future__ import annotations

import pytest

from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.models.recipes import ModelSpec
from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.support.audio import encoded, wav
from workers.backends.base import Backend
from workers.backends.flm.backend import FlmBackend
from workers.backends.whispercpp.backend import WhisperCppBackend

WHISPER = ModelSpec("x", "x", "whispercpp", "system", "audio", "/models/x.bin")
FLM = ModelSpec("x", "x", "flm", "npu", "audio", "whisper-v3:turbo")


@pytest.mark.parametrize("backend", [WhisperCppBackend(WHISPER, Settings()), FlmBackend(FLM, Settings())])
def test_only_measured_formats_are_passed_on(backend: Backend) -> None:
    for data in (wav(0.1), encoded("mp3", "libmp3lame", 0.1), encoded("flac", "flac", 0.1)):
        form = form_data.encode([FormPart("file", data, "recording.wav")])
        assert backend.request("audio/transcriptions", "", form, stream=False).body
    others = [encoded("mp4", "aac", 0.1), encoded("wav", "adpcm_ms", 0.1), encoded("matroska", "flac", 0.1)]
    for data in (*others, b"#EXTM3U\n", b"", b"v=0\r\n"):
        form = form_data.encode([FormPart("file", data, "recording.wav")])
        with pytest.raises(LemonbusError, match=r"WAV .*, MP3 or FLAC") as refused:
            backend.request("audio/transcriptions", "", form, stream=False)
        assert (refused.value.failure.http_status, refused.value.failure.param) == (400, "file")
