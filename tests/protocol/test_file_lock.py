"""A lock file is held by one server, and says which."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol import file_lock


def test_the_holder_is_named_and_the_lock_ends_with_the_last_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = file_lock.lock(path, 4711)
    other = os.dup(first)
    os.close(first)
    with pytest.raises(file_lock.HeldError) as held:
        file_lock.lock(path)
    assert held.value.holder == "4711"
    os.close(other)
    again = file_lock.lock(path)
    assert path.read_text() == f"{os.getpid()}\n"
    os.close(again)


def test_a_file_that_cannot_be_made_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_lock.lock(tmp_path / "missing" / "lock")
