"""Checks that a whisper model in ggml's own file format is complete. Only reads the file.

The format: header, mel filters, vocabulary, then each tensor's header with its data after it, to the end of the file.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from protocol.models.checkpoints import GGML_MAGIC
from workers.files import gguf
from workers.files.errors import BrokenError
from workers.files.gguf import BLOCKS

_EACH_SIZE: Final = 2**24
_MAX_LAYERS: Final = 256
"""Layers of the encoder, and of the decoder; the largest model has 32."""
_FREQUENCIES: Final = 201
"""Frequencies of each mel filter: whisper.cpp assumes, without a check, that they fit its windows of 400 samples."""
_MAX_MELS: Final = 2**12
_MAX_WORDS: Final = 2**20
_MAX_NAME_BYTES: Final = 256
_DIMENSIONS: Final = range(1, 5)


class GgmlHeader(NamedTuple):
    """The first numbers of a file, after its magic; the last two describe its mel filters."""

    words: int
    audio_context: int
    audio_width: int
    audio_heads: int
    audio_layers: int
    text_context: int
    text_width: int
    text_heads: int
    text_layers: int
    mels: int
    kind: int
    filters: int
    frequencies: int


_ENGLISH_WORDS: Final = 51_864
"""Vocabulary size of models that only know English. All others have one more, and one for each further language."""
_FIRST_LANGUAGES: Final = 99


def languages(path: Path) -> int:
    """Return how many languages a model knows; raises :class:`BrokenError`, or OSError."""
    with path.open("rb") as file:
        if file.read(len(GGML_MAGIC)) != GGML_MAGIC:
            raise BrokenError("it is not a ggml file of whisper.cpp")
        (words,) = _numbers(file, 1)
    return 1 if words <= _ENGLISH_WORDS else _FIRST_LANGUAGES + words - _ENGLISH_WORDS - 1


def check(path: Path) -> GgmlHeader:
    """Return the header of a complete model.

    Raises :class:`~workers.files.errors.BrokenError` if a file is not such a model or not complete, OSError if it is unreadable.
    """
    with path.open("rb") as file:
        magic = file.read(len(GGML_MAGIC))
        if magic == gguf.MAGIC:
            raise BrokenError("it is a GGUF file, not a ggml file of whisper.cpp")
        if magic != GGML_MAGIC:
            raise BrokenError("it is not a ggml file of whisper.cpp")
        header = GgmlHeader(*_numbers(file, len(GgmlHeader._fields)))
        if not _is_plausible(header):
            raise BrokenError("its header makes no sense")
        file.seek(4 * header.mels * header.frequencies, 1)
        _skip_words(file)
        wanted = 11 + 15 * header.audio_layers + 24 * header.text_layers
        found = _skip_tensors(file, path.stat().st_size, wanted)
    # whisper.cpp's own tests use files without tensors as models whose weights are zero.
    if found and found < wanted:
        raise BrokenError(f"it is truncated: {wanted - found} tensors are missing")
    return header


def _is_plausible(header: GgmlHeader) -> bool:
    """Return whether whisper.cpp can compute with these numbers; some others end its process."""
    return (
        all(0 <= size < _EACH_SIZE for size in header)
        and min(header._replace(kind=1)) > 0
        and max(header.audio_layers, header.text_layers) <= _MAX_LAYERS
        and header.audio_width % header.audio_heads == header.text_width % header.text_heads == 0
        and header.audio_width == header.text_width
        and header.mels == header.filters <= _MAX_MELS
        and header.frequencies == _FREQUENCIES
    )


def _numbers(file: BinaryIO, count: int) -> tuple[int, ...]:
    data = file.read(4 * count)
    if len(data) < 4 * count:
        raise BrokenError("it is truncated")
    return struct.unpack(f"<{count}i", data)


def _skip_words(file: BinaryIO) -> None:
    (count,) = _numbers(file, 1)
    if not 0 <= count <= _MAX_WORDS:
        raise BrokenError("its vocabulary makes no sense")
    for _ in range(count):
        (length,) = _numbers(file, 1)
        if not 0 <= length <= _EACH_SIZE:
            raise BrokenError("its vocabulary makes no sense")
        file.seek(length, 1)


def _skip_tensors(file: BinaryIO, end: int, most: int) -> int:
    """Return how many tensors there are up to the ``end`` of the file; raises :class:`BrokenError` for more than ``most``."""
    found = 0
    while (position := file.tell()) != end:
        if position > end:
            raise BrokenError(f"it is truncated: {position - end} bytes are missing")
        if found == most:
            raise BrokenError("it has too many tensors")
        dimensions, length, kind = _numbers(file, 3)
        if dimensions not in _DIMENSIONS or not 0 < length <= _MAX_NAME_BYTES or kind not in BLOCKS:
            raise BrokenError("one of its tensors makes no sense")
        shape = _numbers(file, dimensions)
        if not all(0 < size < _EACH_SIZE for size in shape):
            raise BrokenError("one of its tensors makes no sense")
        elements, size = BLOCKS[kind]
        data = length + math.prod(shape) // elements * size
        if data > end:
            raise BrokenError(f"it is truncated: {position + data - end} bytes are missing")
        file.seek(data, 1)
        found += 1
    return found
