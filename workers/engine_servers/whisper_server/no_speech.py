"""The probability that a segment contains no speech, which whisper.cpp knows but its wheel does not pass on.

The wheel contains whisper.cpp as a separate library, so the missing function is called there. It needs the address of
the context, which the wheel keeps inside its Python object: an instance of pybind11 begins with a pointer to the
wrapped structure, which begins with the pointer to the context. Both are checked; if anything differs, no probability
is given.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_FUNCTION: Final = "whisper_full_get_segment_no_speech_prob"
_INSTANCE_BYTES: Final = 56
"""Size of a pybind11 instance on 64-bit systems: head of the object, pointer and holder, weak references, flags."""
_POINTER_OFFSET: Final = 16
_POINTER: Final = struct.Struct("P")


def no_speech_reader(library: Any, context: Any) -> Callable[[int], float | None]:
    """Return a function from a segment's index to its probability; it returns None if that is unknown."""
    whisper = _loaded_library()
    address = _address_of(context)
    if whisper is None or not address or not _is_context(whisper, address, library, context):
        return lambda _index: None
    function = getattr(whisper, _FUNCTION)
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_int], ctypes.c_float
    return lambda index: round(float(function(address, index)), 4)


def _loaded_library() -> ctypes.CDLL | None:
    """Return whisper.cpp's library as loaded in this process; None if it is not loaded, or the function is missing."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
        path = next((line.split(maxsplit=5)[5] for line in maps.splitlines() if "/libwhisper" in line), "")
        found = ctypes.CDLL(path) if path else None
    except (OSError, IndexError):
        return None
    return found if found is not None and hasattr(found, _FUNCTION) else None


def _address_of(context: Any) -> int:
    """Return the address of the context; 0 if the object does not have the expected layout."""
    if type(context).__basicsize__ != _INSTANCE_BYTES or not hasattr(context, "_pybind11_conduit_v1_"):
        return 0
    wrapper = _read_pointer(id(context) + _POINTER_OFFSET)
    return _read_pointer(wrapper) if wrapper else 0


def _read_pointer(address: int) -> int:
    """Return the pointer at an address; 0 if nothing can be read there. A dereference would end this process."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            (value,) = _POINTER.unpack(os.pread(memory, _POINTER.size, address))
        finally:
            os.close(memory)
    except (OSError, OverflowError, struct.error):
        return 0
    return int(value)


def _is_context(whisper: ctypes.CDLL, address: int, library: Any, context: Any) -> bool:
    """Return whether the library says the same about the address as the wheel says about its object."""
    if not _read_pointer(address):
        return False
    names = ("whisper_n_vocab", "whisper_n_text_ctx", "whisper_model_n_audio_state", "whisper_model_n_text_layer")
    for name in names:
        function = getattr(whisper, name)
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int
        if function(address) != getattr(library, name)(context):
            return False
    return True
