"""Reads the header of a GGUF file (keys and tensor list), and checks that the file is complete. Only reads the file."""

from __future__ import annotations

import math
import mmap
import re
import struct
from pathlib import Path
from typing import Final, NamedTuple

from workers.files.errors import BrokenError

MAGIC: Final = b"GGUF"
MAX_ITEMS: Final = 4_000_000
"""Limit on strings and tensors: a vocabulary has about 100,000; a file that claims more than this is broken."""
MAX_KEPT: Final = 2**17
"""Limit on tensors, and on keys, of a header that is kept: a model with 61 layers of 256 separate experts has 47,000."""
MAX_ELEMENTS: Final = 2**50
"""Numbers in all tensors of a file: a thousand times those of the largest models."""
MAX_CONTEXT: Final = 2**31
"""Tokens from which on a file's context counts as unknown."""
MAX_DIMENSIONS: Final = 8
_MAX_LIST: Final = 4_096
"""Items up to which an array of numbers is read: it has one for each layer. A vocabulary has more."""
_PART: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_STRING, _ARRAY = 8, 9
_SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_INTEGERS: Final = {0: "<B", 2: "<H", 4: "<I", 5: "<i", 10: "<Q", 11: "<q"}
_NUMBERS: Final = {**_INTEGERS, 1: "<b", 3: "<h", 6: "<f", 7: "<?", 12: "<d"}
# fmt: off
BLOCKS: Final = {
    0: (1, 4), 1: (1, 2), 30: (1, 2), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8),
    2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110),
    22: (256, 82), 23: (256, 136), 29: (256, 56), 34: (256, 54), 35: (256, 66), 39: (32, 17),
}
# fmt: on
"""Tensor type → elements and bytes of a block. For an unknown type, only the start is checked."""


class ArrayLength(NamedTuple):
    """An array in a header, of which only the length is read."""

    items: int


MetadataValue = int | float | str | bool | ArrayLength
HeaderValue = MetadataValue | tuple[int | float, ...]
"""The tuple: an array with a number for each layer."""


class GgufTensor(NamedTuple):
    """What a header says about a tensor."""

    name: str
    shape: tuple[int, ...]
    """The first dimension is the one whose elements lie next to each other."""
    kind: int
    """A key of :data:`BLOCKS`, or a type that is not known here."""
    size: int
    """Bytes; 0 for an unknown type."""


class GgufHeader(NamedTuple):
    """What a whole header says."""

    architecture: str
    context_length: int
    """Tokens that the model was trained for; 0 if the file does not say."""
    keys: dict[str, HeaderValue]
    tensors: list[GgufTensor]
    """Those in this file."""

    @property
    def parameters(self) -> int:
        """Elements of all tensors in this file."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors)


class PartialHeader(NamedTuple):
    """What the first bytes of a file say. The file need not be complete."""

    architecture: str = ""
    name: str = ""
    """``general.name``."""
    pooling: int | None = None
    """``ARCHITECTURE.pooling_type`` in llama.cpp's numbers, None if the file does not say."""
    kind: str = ""
    """``general.type``: ``model``, ``adapter``, ``mmproj``, ``imatrix``…; older files do not say it."""
    tensors: tuple[str, ...] = ()
    """Names of tensors, up to the end of the bytes."""


def parts_of(path: Path) -> list[Path]:
    """Return the files of a split model, or the one file."""
    found = _PART.search(path.name)
    if found is None:
        return [path]
    stem, count = path.name[: found.start()], int(found[2])
    return [path.with_name(f"{stem}-{number:05d}-of-{found[2]}.gguf") for number in range(1, min(count, 999) + 1)]


def read(path: Path) -> GgufHeader:
    """Read the header; raises :class:`BrokenError`, or OSError if the file cannot be read."""
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise BrokenError("it is not a GGUF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _GgufReader(data).header()
            except (struct.error, IndexError, OverflowError, RecursionError):
                raise BrokenError("it is truncated inside its header") from None


def read_metadata(path: Path) -> dict[str, MetadataValue]:
    """Return every key of a header with its value; raises as :func:`read`."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != MAGIC:
            raise BrokenError("it is not a GGUF file")
        try:
            return _GgufReader(data).metadata()
        except (struct.error, IndexError, OverflowError, RecursionError):
            raise BrokenError("it is truncated inside its header") from None


def read_partial(data: bytes) -> PartialHeader:
    """Read what the first bytes of a file say, however few they are; an empty header if it is not a GGUF file."""
    return _GgufReader(data).partial_header() if data.startswith(MAGIC) else PartialHeader()


class _GgufReader:
    def __init__(self, data: mmap.mmap | bytes) -> None:
        self._data = data
        self._position = 4
        self._items_left = MAX_ITEMS

    def _number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._position)
        self._position += struct.calcsize(form)
        return int(value)

    def _count_items(self, items: int) -> None:
        self._items_left -= items
        if self._items_left < 0:
            raise BrokenError("its header makes no sense")

    def _string(self) -> bytes:
        length = self._number("<Q")
        if length > len(self._data) - self._position:
            raise BrokenError("it is truncated inside its header")
        self._position += length
        return self._data[self._position - length : self._position]

    def _skip_strings(self, count: int) -> None:
        self._count_items(count)
        at, data, read_length = self._position, self._data, struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + read_length(data, at)[0]
        self._position = at

    def _skip(self, kind: int) -> None:
        if kind == _STRING:
            self._skip_strings(1)
        elif kind == _ARRAY:
            inner, count = self._number("<I"), self._number("<Q")
            if inner == _STRING:
                self._skip_strings(count)
            elif inner == _ARRAY:
                self._count_items(count)
                for _ in range(count):
                    self._skip(_ARRAY)
            else:
                self._position += self._size(inner) * count
        else:
            self._position += self._size(kind)

    def _size(self, kind: int) -> int:
        if kind not in _SIZES:
            raise BrokenError(f"its header has a value of the unknown type {kind}")
        return _SIZES[kind]

    def metadata(self) -> dict[str, MetadataValue]:
        """Read all keys; for arrays, only their lengths."""
        self._position += 4 + 8  # version, number of tensors
        count = self._number("<Q")
        self._count_items(count)
        found: dict[str, MetadataValue] = {}
        for _ in range(count):
            key = self._string().decode("utf-8", "replace")
            found[key] = self._value(self._number("<I"))
        return found

    def _value(self, kind: int) -> MetadataValue:
        if kind in _NUMBERS:
            (value,) = struct.unpack_from(_NUMBERS[kind], self._data, self._position)
            self._position += self._size(kind)
            number: int | float | bool = value
            return number
        if kind == _STRING:
            return self._string().decode("utf-8", "replace")
        start = self._position
        if kind == _ARRAY:
            _, items = self._number("<I"), self._number("<Q")
            self._position = start
            self._skip(kind)
            return ArrayLength(items)
        raise BrokenError(f"its header has a value of the unknown type {kind}")

    def partial_header(self) -> PartialHeader:
        """Read keys and tensor names until the bytes end or become invalid."""
        found: dict[bytes, str | int] = {}
        names: list[str] = []
        try:
            self._number("<I")
            tensors, keys = self._number("<Q"), self._number("<Q")
            for _ in range(keys):
                key, kind = self._string(), self._number("<I")
                if kind == _STRING and key in (b"general.architecture", b"general.name", b"general.type"):
                    found[key] = self._string().decode("utf-8", "replace")
                elif kind in _INTEGERS and key.endswith(b".pooling_type"):
                    found[b"pooling_type"] = self._number(_INTEGERS[kind])
                else:
                    self._skip(kind)
            for _ in range(tensors):
                names.append(self._string().decode("utf-8", "replace"))
                dimensions = self._number("<I")
                self._position += 8 * dimensions + 12
        except (BrokenError, struct.error, IndexError, OverflowError, RecursionError):
            pass
        architecture, name, of_type = (
            str(found.get(b"general." + key, "")) for key in (b"architecture", b"name", b"type")
        )
        pooling = found.get(b"pooling_type")
        return PartialHeader(architecture, name, None if pooling is None else int(pooling), of_type, tuple(names))

    def header(self) -> GgufHeader:
        version = self._number("<I")
        if version not in (2, 3):
            raise BrokenError(f"its GGUF version {version} is not supported")
        tensors, keys = self._number("<Q"), self._number("<Q")
        if max(tensors, keys) > MAX_KEPT:
            raise BrokenError("its header makes no sense")
        found: dict[str, HeaderValue] = {}
        for _ in range(keys):
            key = self._string().decode("utf-8", "replace")
            found[key] = self._value_or_list(self._number("<I"))
        alignment = found.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0:
            raise BrokenError("its header makes no sense")
        architecture = found.get("general.architecture")
        contexts = [value for key, value in found.items() if key.endswith(".context_length") and isinstance(value, int)]
        context = contexts[-1] if contexts and 0 <= contexts[-1] < MAX_CONTEXT else 0
        listed = self._check_tensors(tensors, alignment)
        return GgufHeader(architecture if isinstance(architecture, str) else "", context, found, listed)

    def _value_or_list(self, kind: int) -> HeaderValue:
        """Read a value, or all items of a short array of numbers."""
        start = self._position
        if kind == _ARRAY:
            inner, items = self._number("<I"), self._number("<Q")
            if inner in _NUMBERS and items <= _MAX_LIST:
                self._count_items(items)
                values = struct.unpack_from(f"<{items}{_NUMBERS[inner][1:]}", self._data, self._position)
                self._position += self._size(inner) * items
                return values
            self._position = start
        return self._value(kind)

    def _check_tensors(self, tensors: int, alignment: int) -> list[GgufTensor]:
        """Check that the data of all tensors is there; return them."""
        end = parameters = 0
        found = []
        for _ in range(tensors):
            name, dimensions = self._string().decode("utf-8", "replace"), self._number("<I")
            if dimensions > MAX_DIMENSIONS:
                raise BrokenError("its header makes no sense")
            shape = tuple(self._number("<Q") for _ in range(dimensions))
            elements = math.prod(shape)
            parameters += elements
            if parameters > MAX_ELEMENTS:
                raise BrokenError("its header makes no sense")
            kind, offset = self._number("<I"), self._number("<Q")
            block, size = BLOCKS.get(kind, (1, 0))
            found.append(GgufTensor(name, shape, kind, elements // block * size))
            end = max(end, offset + found[-1].size)
        start = -(-self._position // alignment) * alignment
        missing = start + end - len(self._data)
        if tensors and missing > 0:
            raise BrokenError(f"it is truncated: {missing} bytes are missing")
        return found
