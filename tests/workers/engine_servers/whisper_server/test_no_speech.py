"""The address of whisper.cpp's context, which is only read from the binding's object."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from workers.engine_servers.whisper_server import no_speech
from workers.engine_servers.whisper_server.no_speech import no_speech_reader


class Stranger:
    """An object whose layout is not that of a pybind11 instance."""


class Lookalike(ctypes.Structure):
    """An object of the size of an instance that contains nothing like an address."""

    _pybind11_conduit_v1_ = None


@pytest.mark.parametrize("context", [None, 7, "text", Stranger(), Lookalike()])
def test_nothing_is_read_from_an_object_that_is_not_a_context(context: Any) -> None:
    assert no_speech_reader(Stranger(), context)(0) is None


@pytest.mark.parametrize("address", [0, 8, 2**47, 2**63, 2**64 - 8])
def test_unreadable_memory_is_not_a_pointer(address: int) -> None:
    assert no_speech._read_pointer(address) == 0


def test_a_pointer_is_read() -> None:
    box = ctypes.c_void_p(4711)
    assert no_speech._read_pointer(ctypes.addressof(box)) == 4711
