"""Reads as much of a whisper model in ggml's own file format as it takes to know that it is whole. Pure but for the file.

Header, mel filters, vocabulary, then each tensor's head with its data behind it, to the end of the file.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO, Final

from protocol.checkpoints import GGML
from workers import gguf
from workers.gguf import BLOCKS, BrokenError

_SIZES: Final = 11
_AUDIO_LAYERS, _TEXT_LAYERS = 4, 8
"""Places among the sizes."""
_EACH_SIZE: Final = 2**24
_MOST_FILTERS: Final = 2**24
_MOST_WORDS: Final = 2**20
_LONGEST_NAME: Final = 256
_DIMENSIONS: Final = range(1, 5)


def check(path: Path) -> None:
    """Raise :class:`~workers.gguf.BrokenError` for a file that is none or not whole, OSError if it cannot be read."""
    with path.open("rb") as file:
        magic = file.read(len(GGML))
        if magic == gguf.MAGIC:
            raise BrokenError("it is a GGUF file, not a ggml file of whisper.cpp")
        if magic != GGML:
            raise BrokenError("it is not a ggml file of whisper.cpp")
        sizes = _numbers(file, _SIZES)
        if not all(0 <= size < _EACH_SIZE for size in sizes):
            raise BrokenError("its header makes no sense")
        mels, frequencies = _numbers(file, 2)
        if min(mels, frequencies) < 0 or mels * frequencies > _MOST_FILTERS:
            raise BrokenError("its header makes no sense")
        file.seek(4 * mels * frequencies, 1)
        _skip_words(file)
        found = _skip_tensors(file, path.stat().st_size)
    # None at all is how whisper.cpp's own tests write a model whose weights are zero.
    missing = 11 + 15 * sizes[_AUDIO_LAYERS] + 24 * sizes[_TEXT_LAYERS] - found
    if found and missing:
        raise BrokenError(
            f"it is truncated: {missing} tensors are missing" if missing > 0 else "it has tensors too many"
        )


def _numbers(file: BinaryIO, count: int) -> tuple[int, ...]:
    data = file.read(4 * count)
    if len(data) < 4 * count:
        raise BrokenError("it is truncated")
    return struct.unpack(f"<{count}i", data)


def _skip_words(file: BinaryIO) -> None:
    (count,) = _numbers(file, 1)
    if not 0 <= count <= _MOST_WORDS:
        raise BrokenError("its vocabulary makes no sense")
    for _ in range(count):
        (length,) = _numbers(file, 1)
        if not 0 <= length <= _EACH_SIZE:
            raise BrokenError("its vocabulary makes no sense")
        file.seek(length, 1)


def _skip_tensors(file: BinaryIO, end: int) -> int:
    """Return how many there are up to the ``end`` of the file."""
    found = 0
    while (place := file.tell()) != end:
        if place > end:
            raise BrokenError(f"it is truncated: {place - end} bytes are missing")
        dimensions, length, kind = _numbers(file, 3)
        if dimensions not in _DIMENSIONS or not 0 < length <= _LONGEST_NAME or kind not in BLOCKS:
            raise BrokenError("one of its tensors makes no sense")
        shape = _numbers(file, dimensions)
        if not all(0 < size < _EACH_SIZE for size in shape):
            raise BrokenError("one of its tensors makes no sense")
        elements, size = BLOCKS[kind]
        file.seek(length + math.prod(shape) // elements * size, 1)
        found += 1
    return found
