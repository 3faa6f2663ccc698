"""The memory that a whisper-server needs: from the header of its model. Pure.

The buffers are those that whisper.cpp logs when it makes its state. It reads the model into memory of its own.
"""

from __future__ import annotations

from typing import Final

from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from workers.files.ggml import GgmlHeader

PROCESS_BYTES: Final = 38 * 1024**2
"""What our own server keeps beside the model: Python, the library, the decoder of recordings."""
_CELL_STEP: Final = 256
_STATE_BYTES: Final = 4
_CACHE_BYTES: Final = 2
_SPECTRA: Final = 3000
"""Frames of 30 s of sound."""


def whisper_memory(header: GgmlHeader, size: int, *, flash: bool) -> MemoryEstimate:
    """Return what a server needs. ``size``: bytes of the model. ``flash``: it never has all scores of the attention at once."""
    width, audio, text = header.audio_width, header.audio_context, header.text_context
    cells = [_padded(text) * header.text_layers, _padded(audio) * header.text_layers, _padded(audio)]
    cache = sum(cells) * width * 2 * _CACHE_BYTES
    convolution = 2.9 * _SPECTRA * width * _STATE_BYTES
    encoder = (7.7 * width + (0 if flash else audio * header.audio_heads)) * audio * _STATE_BYTES
    crossing = 1.7 * audio * width * _STATE_BYTES
    decoder = (header.words + 4.5 * width) * text * _STATE_BYTES
    parts = {
        "weights": size,
        "cache": cache,
        "compute": round(convolution + encoder + crossing + decoder),
        "process": PROCESS_BYTES,
    }
    return MemoryEstimate({HOST: PlaceNeed(sum(parts.values()), lazy=parts["compute"])}, parts=parts)


def _padded(tokens: int) -> int:
    return -(-tokens // _CELL_STEP) * _CELL_STEP
