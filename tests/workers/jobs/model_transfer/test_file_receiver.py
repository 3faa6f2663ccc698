"""The transfer of model files, with senders in this process: what arrives where, what is resumed, and what fails."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from protocol.failures import Code
from protocol.messages.model_transfer import FileRoot, FileSender, FilesPresent, StartFileTransfer, TransferFile
from tests.support.ports import free_port
from tests.workers.jobs.model_transfer.receiving import DATA, SPEC, all_files, fetch, on_another_machine
from tests.workers.jobs.transfer_files import (
    KEY,
    HubFile,
    sender,
    shared,
    transfer_file,
    written,
)
from workers.jobs import disk
from workers.jobs.errors import SourceError
from workers.jobs.model_transfer import file_receiver
from workers.jobs.model_transfer.file_places import NodeFolders
from workers.jobs.model_transfer.file_receiver import FileReceiver


def test_a_file_of_the_hub_arrives_in_its_layout(folders: NodeFolders, hub: HubFile, tmp_path: Path) -> None:
    path, file = folders.hub / hub.file.name, on_another_machine(hub.file)
    with sender(shared(hub.file)) as head:
        assert fetch(folders, [file], [head]) == FilesPresent("m", {file.path: str(path)})
    assert path.read_bytes() == DATA
    blob = hashlib.sha256(DATA).hexdigest()
    assert str(path.readlink()) == f"../../blobs/{blob}"
    assert all_files(folders.hub) == {file.name, f"models--shop--tiny/blobs/{blob}"}
    assert fetch(folders, [file], []).paths == {file.path: str(path)}, "it is there now"
    path.unlink()
    assert fetch(folders, [file], []).paths == {file.path: str(path)}, "its blob is there"


def test_files_of_all_roots_arrive_with_their_times(folders: NodeFolders, tmp_path: Path) -> None:
    cache = tmp_path / "head" / "cache" / "models" / "kokoro"
    on_head = [
        transfer_file(written(cache / "model.onnx", DATA), "models/kokoro/model.onnx", FileRoot.CACHE),
        transfer_file(written(cache / "voices" / "a.bin", DATA[:99]), "models/kokoro/voices/a.bin", FileRoot.CACHE),
        transfer_file(written(cache / "empty", b""), "models/kokoro/empty", FileRoot.CACHE),
        transfer_file(written(tmp_path / "head" / "a [1].gguf", DATA[::-1]), "0123/a [1].gguf"),
    ]
    files = [on_another_machine(file) for file in on_head]
    places = [folders.cache / file.name for file in files[:3]] + [folders.cache / "node_files" / files[3].name]
    with sender(*map(shared, on_head)) as head:
        fetched = fetch(folders, files, [head])
    assert fetched.paths == {file.path: str(place) for file, place in zip(files, places, strict=True)}
    assert fetched.found == []
    for file, place in zip(on_head, places, strict=True):
        assert place.read_bytes() == Path(file.path).read_bytes()
        assert place.stat().st_mtime_ns == file.mtime_ns
    assert len(all_files(folders.cache)) == len(files), "no partial file is left"


def test_progress_counts_all_files(folders: NodeFolders, other: TransferFile, hub: HubFile, tmp_path: Path) -> None:
    receiver = FileReceiver(StartFileTransfer(SPEC, [other, hub.file], [], KEY), folders)
    assert (receiver.done, receiver.total) == (0, 2 * len(DATA))
    with sender(shared(other), shared(hub.file)) as head:
        receiver.senders = [head]
        receiver.run()
    assert receiver.done == receiver.total


def test_a_file_in_a_shared_folder_is_used_as_it_is(folders: NodeFolders, other: TransferFile) -> None:
    assert fetch(folders, [other], []) == FilesPresent("m", {other.path: other.path}, [other.path])
    assert all_files(folders.cache) == set()


@pytest.mark.parametrize("change", ["size", "mtime_ns"])
def test_another_file_under_the_path_of_the_head_is_not_used(
    folders: NodeFolders, other: TransferFile, change: str, tmp_path: Path
) -> None:
    """The node has an older model there, in a folder of its own."""
    on_head = shutil.copy2(other.path, tmp_path / "on the head")
    if change == "size":
        written(Path(other.path), DATA[1:])
    else:
        os.utime(other.path, (1, 1))
    with sender(shared(other, on_head)) as head:
        fetched = fetch(folders, [other], [head])
    assert fetched.paths == {other.path: str(folders.cache / "node_files" / other.name)}
    assert Path(fetched.paths[other.path]).read_bytes() == DATA


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "", ".", "..", "a/\0"])
@pytest.mark.parametrize("root", FileRoot)
def test_a_name_that_leaves_its_folder_is_refused(
    folders: NodeFolders, other: TransferFile, name: str, root: FileRoot
) -> None:
    file = TransferFile(other.id, "/no/such", root, name, 1, 1)
    with pytest.raises(SourceError, match="leaves its folder"):
        fetch(folders, [file], [FileSender("head", "127.0.0.1:1")])


@pytest.mark.parametrize("blob", ["../x", "..", "/etc/x"])
def test_a_blob_that_leaves_its_folder_is_refused(folders: NodeFolders, blob: str) -> None:
    file = TransferFile(32 * "0", "/no/such", FileRoot.HUB, "models--a--b/snapshots/c/d", 1, 1, blob)
    with pytest.raises(SourceError, match="leaves its folder"):
        fetch(folders, [file], [])


def partial_of(folders: NodeFolders, file: TransferFile) -> Path:
    if file.blob:
        return folders.hub / "models--shop--tiny" / "blobs" / f"{file.blob}.incomplete"
    place = folders.cache / "node_files" / file.name
    return place.with_name(f".{place.name}.{file.id}.incomplete")


def test_a_transfer_goes_on_where_the_last_one_ended(
    folders: NodeFolders, file: TransferFile, head: FileSender, begins: list[int]
) -> None:
    written(partial_of(folders, file), DATA[:123_456])
    fetched = fetch(folders, [file], [head])
    assert Path(fetched.paths[file.path]).read_bytes() == DATA
    assert begins == [123_456]


def test_a_damaged_part_is_fetched_again(
    folders: NodeFolders, file: TransferFile, head: FileSender, begins: list[int]
) -> None:
    written(partial_of(folders, file), b"x" * 123_456)
    fetched = fetch(folders, [file], [head])
    assert Path(fetched.paths[file.path]).read_bytes() == DATA
    assert begins == [123_456, 0]


def test_a_part_that_is_too_long_is_fetched_again(
    folders: NodeFolders, file: TransferFile, head: FileSender, begins: list[int]
) -> None:
    written(partial_of(folders, file), DATA + b"x")
    assert Path(fetch(folders, [file], [head]).paths[file.path]).read_bytes() == DATA
    assert begins == [0]


def test_the_next_sender_goes_on_where_the_last_one_failed(
    folders: NodeFolders, file: TransferFile, head: FileSender, tmp_path: Path
) -> None:
    with sender() as ignorant:
        gone = FileSender("a", f"127.0.0.1:{free_port()}")
        fetched = fetch(folders, [file], [gone, FileSender("b", ignorant.address), head])
    assert Path(fetched.paths[file.path]).read_bytes() == DATA


def test_a_file_that_becomes_shorter_while_it_is_sent_is_taken_from_another_sender(
    folders: NodeFolders, file: TransferFile, head: FileSender, tmp_path: Path, begins: list[int]
) -> None:
    """The registered size is that of before."""
    shorter = written(tmp_path / "shorter", DATA[:1000])
    with sender(shared(file, shorter), node="b") as first:
        fetched = fetch(folders, [file], [first, head])
    assert Path(fetched.paths[file.path]).read_bytes() == DATA
    assert begins == [0, 0]


def test_a_file_that_has_changed_everywhere_fails_at_once(
    folders: NodeFolders, file: TransferFile, head: FileSender, on_head: Path
) -> None:
    os.utime(on_head, (1, 1))
    with pytest.raises(SourceError, match="head: the file has changed there"):
        fetch(folders, [file], [head])


FAILURES = [
    pytest.param(lambda head: [head], "wrong", "head: it answered with status 401", id="a wrong key"),
    pytest.param(lambda _head: [FileSender("a", "127.0.0.1:1")], KEY, "a: it cannot be reached", id="nothing listens"),
    pytest.param(lambda _head: [], KEY, "no node that has the files can be reached", id="no sender"),
]


@pytest.mark.parametrize(("senders", "key", "reason"), FAILURES)
def test_without_a_sender_the_transfer_fails_after_a_while(
    folders: NodeFolders,
    file: TransferFile,
    head: FileSender,
    senders: Callable[[FileSender], list[FileSender]],
    key: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_receiver, "PATIENCE_S", 0.2)
    with pytest.raises(SourceError, match=reason):
        fetch(folders, [file], senders(head), key)
    assert not list(folders.cache.rglob("m.gguf"))


def test_other_senders_may_come_while_it_waits(folders: NodeFolders, file: TransferFile, head: FileSender) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        receiver.senders = [head]

    order = StartFileTransfer(SPEC, [file], [FileSender("a", f"127.0.0.1:{free_port()}")], KEY)
    receiver = FileReceiver(order, folders, wait)
    assert Path(receiver.run().paths[file.path]).read_bytes() == DATA
    assert waits


def test_space_is_checked_before_anything_is_written(
    folders: NodeFolders, file: TransferFile, head: FileSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = disk.FREE_MARGIN_BYTES + len(DATA) - 1000
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: shutil._ntuple_diskusage(free, 0, free))
    with pytest.raises(SourceError, match="not enough disk space") as raised:
        fetch(folders, [file], [head])
    assert raised.value.code is Code.INSUFFICIENT_STORAGE
    folder = folders.place(file).content.parent
    assert raised.value.detail == f"{folder}: 1000 bytes are missing"
    assert not folders.hub.exists()
    assert not folders.cache.exists()
    written(partial_of(folders, file), DATA[:1000])
    assert fetch(folders, [file], [head]), "what is there needs no space"


def test_a_disk_that_cannot_be_written_is_named(
    folders: NodeFolders, file: TransferFile, head: FileSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> NoReturn:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(file_receiver.PartialFile, "write", fails)
    with pytest.raises(SourceError, match="a file could not be written: Input/output error"):
        fetch(folders, [file], [head])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "node"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_keeps_what_has_arrived_for_the_next_try(
    folders: NodeFolders,
    file: TransferFile,
    head: FileSender,
    small_disk: Path,
    begins: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another program has filled it meanwhile."""
    monkeypatch.setattr(disk, "require_free_space", lambda *_: None)
    with pytest.raises(SourceError, match="the disk of this node is full") as raised:
        fetch(folders, [file], [head])
    assert raised.value.code is Code.INSUFFICIENT_STORAGE
    arrived = partial_of(folders, file)
    assert 0 < arrived.stat().st_size < len(DATA)
    assert f" {len(DATA) - arrived.stat().st_size} bytes have not arrived" in str(raised.value)
    assert all_files(small_disk) == {str(arrived.relative_to(small_disk))}
    resume_at = arrived.stat().st_size
    subprocess.run(["mount", "-o", "remount,size=2m", str(small_disk)], check=True)
    assert Path(fetch(folders, [file], [head]).paths[file.path]).read_bytes() == DATA
    assert begins == [0, resume_at]


def test_parts_of_former_contents_are_removed(folders: NodeFolders, other: TransferFile, tmp_path: Path) -> None:
    former = partial_of(folders, other)
    written(former.with_name(f".m.gguf.{32 * 'f'}.incomplete"), b"x")
    neighbour = written(former.with_name(f".n.gguf.{32 * 'f'}.incomplete"), b"x")
    with sender(shared(other)) as head:
        fetch(folders, [on_another_machine(other)], [head])
    assert all_files(folders.cache) == {"node_files/d1/m.gguf", str(neighbour.relative_to(folders.cache))}
