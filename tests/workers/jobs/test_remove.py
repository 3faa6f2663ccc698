"""What the job that removes a model's files takes away, and what it leaves."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from protocol.messages.model_files import Removed, RemoveFailed, StartRemoval
from workers.jobs.remove import remove


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two revisions that share a blob, one file of another program's, and a transfer that broke off."""
    root = tmp_path / "hub" / "models--o--r"
    for revision, name, blob in (("a", "x.gguf", "b1"), ("b", "x.gguf", "b1"), ("a", "sub/y.gguf", "b2")):
        (root / "blobs").mkdir(parents=True, exist_ok=True)
        (root / "blobs" / blob).write_bytes(b"data")
        link = root / "snapshots" / revision / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(root / "blobs" / blob)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("a")
    (root / "blobs" / "b3.incomplete").write_bytes(b"half")
    return root


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() or path.is_symlink()}


def order(root: Path, *files: str, tidy: bool = True) -> StartRemoval:
    return StartRemoval("m", [str(root / file) for file in files], [str(root)] if tidy else [])


def test_a_blob_stays_as_long_as_a_name_means_it(repository: Path) -> None:
    assert remove(order(repository, "snapshots/a/x.gguf", tidy=False)) == Removed("m", 1)
    assert (repository / "blobs/b1").exists()
    assert remove(order(repository, "snapshots/b/x.gguf", tidy=False)) == Removed("m", 1)
    assert not (repository / "blobs/b1").exists()
    assert not (repository / "snapshots/b").exists()
    assert (repository / "blobs/b3.incomplete").exists()


def test_partial_downloads_are_removed_unless_in_use(repository: Path) -> None:
    lock = repository.parent / ".locks" / repository.name / "b3.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove(order(repository, "snapshots/a/x.gguf", "snapshots/b/x.gguf", "snapshots/a/sub/y.gguf"))
        assert (repository / "blobs/b3.incomplete").exists()
    remove(order(repository))
    assert not repository.exists()
    assert not lock.parent.exists()


def test_a_link_to_itself_goes_too(repository: Path) -> None:
    (repository / "snapshots/a/z.gguf").symlink_to("z.gguf")
    assert remove(order(repository, "snapshots/a/z.gguf")) == Removed("m", 1)
    assert "snapshots/a/z.gguf" not in names(repository)


def test_nothing_is_left_of_a_repository_without_files(repository: Path) -> None:
    assert remove(order(repository, "snapshots/a/x.gguf", "snapshots/b/x.gguf")) == Removed("m", 2)
    assert names(repository) == {"refs/main", "snapshots/a/sub/y.gguf", "blobs/b2"}
    assert remove(order(repository, "snapshots/a/sub/y.gguf")) == Removed("m", 1)
    assert not repository.exists()


def test_files_that_are_already_gone_are_not_an_error(repository: Path, tmp_path: Path) -> None:
    assert remove(order(repository, "snapshots/a/never.gguf")) == Removed("m", 1)
    assert remove(StartRemoval("m", [str(tmp_path / "no" / "file")], [str(tmp_path / "no")])) == Removed("m", 1)


def test_a_wheels_file_goes_with_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "models" / "dist-1.0" / "m.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF")
    assert remove(StartRemoval("m", [str(file)])) == Removed("m", 1)
    assert not file.parent.exists()
    assert file.parent.parent.exists()


def test_a_file_that_cannot_be_removed_is_reported_without_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "dist"
    (folder / "inner").mkdir(parents=True)
    result = remove(StartRemoval("m", [str(folder)]))
    assert isinstance(result, RemoveFailed)
    assert str(tmp_path) not in result.failure.message
    assert str(tmp_path) in result.failure.detail


def test_flm_removes_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "flm"
    program.parent.mkdir()
    mark = tmp_path / "models" / "flm" / "llama3.2-1b.json"
    mark.parent.mkdir(parents=True)
    mark.write_text("{}")
    for code, gone in ((1, False), (0, True)):
        program.write_text(f'#!/bin/sh\ntest "$*" = "remove llama3.2:1b" && exit {code}\nexit 9\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        result = remove(StartRemoval("m", [str(mark)], tag="flm:llama3.2:1b"))
        assert isinstance(result, Removed) is gone
        assert mark.exists() is not gone
