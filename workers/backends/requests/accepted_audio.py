"""Which recordings a third-party engine may get: only those that the gateway has measured, because it decodes without limits. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.failures import invalid
from protocol.wire.audio_format import MEASURED, recording_type
from protocol.wire.form_data import FormPart


def check_measured(parts: Iterable[FormPart], program: str) -> None:
    """Raise ``invalid_request`` for a file in a format that is not measured."""
    for part in parts:
        if part.name == "file" and recording_type(part.data) not in MEASURED:
            raise invalid(
                f"`file`: {program} gets recordings in WAV (not compressed), MP3 or FLAC: convert it first", "file"
            )
