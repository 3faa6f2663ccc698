"""The sha256 of files: computed once, kept, and never that of another content."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from protocol.messages.model_transfer import SharedFile
from tests.workers.jobs.transfer_files import content, shared, transfer_file, written
from workers.jobs.model_transfer import file_digests
from workers.jobs.model_transfer.file_digests import FILE, ChangedError, FileDigests

DATA = content(100_003)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "models" / "m.gguf", DATA)


@pytest.fixture
def file(path: Path) -> SharedFile:
    return shared(transfer_file(path))


def test_a_digest_is_computed_once_and_kept(tmp_path: Path, path: Path, file: SharedFile) -> None:
    assert FileDigests(str(tmp_path)).get(file) == hashlib.sha256(DATA).hexdigest()
    written(path, DATA[::-1])  # of the same size and time: it would be seen if the file were read again
    assert FileDigests(str(tmp_path)).get(file) == hashlib.sha256(DATA).hexdigest()


@pytest.mark.parametrize("kept", [b"", b"{", b"[]", b'{"x": {"size": 1}}'])
def test_a_damaged_file_of_digests_is_replaced(tmp_path: Path, file: SharedFile, kept: bytes) -> None:
    written(tmp_path / FILE, kept)
    FileDigests(str(tmp_path)).get(file)
    assert file.path.encode() in (tmp_path / FILE).read_bytes()


def test_the_digest_of_a_former_content_is_not_that_of_the_next(tmp_path: Path, path: Path, file: SharedFile) -> None:
    digests = FileDigests(str(tmp_path))
    digests.get(file)
    other = DATA[::-1] + b"y"
    assert digests.get(shared(transfer_file(written(path, other)))) == hashlib.sha256(other).hexdigest()


def test_a_file_that_is_not_the_registered_one_has_none(tmp_path: Path, path: Path, file: SharedFile) -> None:
    written(path, DATA + b"x")
    with pytest.raises(ChangedError):
        FileDigests(str(tmp_path)).get(file)
    path.unlink()
    with pytest.raises(ChangedError):
        FileDigests(str(tmp_path)).get(file)


def test_the_oldest_digests_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_digests, "MAX_RECORDS", 2)
    digests = FileDigests(str(tmp_path))
    for name in "abc":
        digests.get(shared(transfer_file(written(tmp_path / name, name.encode()))))
    kept = (tmp_path / FILE).read_text()
    assert [name for name in "abc" if f'"{tmp_path / name}"' in kept] == ["b", "c"]
