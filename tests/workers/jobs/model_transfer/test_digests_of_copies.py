"""A copy is what the head says that it is: senders of other bytes are refused and named."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.messages.model_transfer import FileSender, StartFileTransfer, TransferFile
from tests.workers.jobs.model_transfer.receiving import DATA, SPEC, all_files, fetch, on_another_machine
from tests.workers.jobs.transfer_files import KEY, HubFile, sender, shared, written
from workers.jobs.errors import SourceError
from workers.jobs.model_transfer import file_receiver
from workers.jobs.model_transfer.file_places import NodeFolders
from workers.jobs.model_transfer.file_receiver import FileReceiver


def test_a_file_that_arrives_damaged_is_not_kept(
    folders: NodeFolders, hub: HubFile, tmp_path: Path, begins: list[int]
) -> None:
    """The sender has other bytes of the same size than the name of the blob says."""
    wrong = written(tmp_path / "wrong", DATA[::-1])
    (tmp_path / "head").rename(tmp_path / "elsewhere")
    with (
        sender(shared(hub.file, wrong)) as head,
        pytest.raises(SourceError, match=r"tiny\.gguf: head: it sent other bytes"),
    ):
        fetch(folders, [hub.file], [head])
    assert all_files(folders.hub) == set()
    assert begins == [0]


def test_a_sender_of_other_bytes_is_refused_and_named(
    folders: NodeFolders, file: TransferFile, head: FileSender, tmp_path: Path, begins: list[int]
) -> None:
    wrong = written(tmp_path / "wrong", DATA[::-1])
    with sender(shared(file, wrong), node="gpu2") as other:
        fetched = fetch(folders, [file], [other, head])
        assert Path(fetched.paths[file.path]).read_bytes() == DATA
        assert (fetched.refused, begins) == (["gpu2"], [0, 0])


def same_size_and_time(path: Path, file: TransferFile) -> None:
    path.write_bytes(DATA[::-1])
    os.utime(path, ns=(file.mtime_ns, file.mtime_ns))


def test_a_distrusted_copy_is_compared_and_fetched_again(
    folders: NodeFolders, file: TransferFile, head: FileSender, begins: list[int]
) -> None:
    copy = Path(fetch(folders, [file], [head]).paths[file.path])
    order = StartFileTransfer(SPEC, [file], [head], KEY, distrusted=True)
    FileReceiver(order, folders).run()
    assert begins == [0], "it was right"
    same_size_and_time(copy.resolve(), file)
    assert fetch(folders, [file], [head]).paths == {file.path: str(copy)}, "size and time are those of the head"
    assert begins == [0]
    fetched = FileReceiver(order, folders).run()
    assert Path(fetched.paths[file.path]).read_bytes() == DATA
    assert begins == [0, 0]


def test_other_bytes_under_the_path_of_the_head_are_left_alone_and_not_used(
    folders: NodeFolders, other: TransferFile, tmp_path: Path
) -> None:
    right = written(tmp_path / "right", DATA)
    same_size_and_time(Path(other.path), other)
    with sender(shared(other, right)) as head:
        fetched = FileReceiver(StartFileTransfer(SPEC, [other], [head], KEY, distrusted=True), folders).run()
    assert Path(fetched.paths[other.path]).read_bytes() == DATA
    assert Path(other.path).read_bytes() == DATA[::-1]
    assert fetched.found == []


def test_when_all_send_other_bytes_all_are_named(folders: NodeFolders, other: TransferFile, tmp_path: Path) -> None:
    first = shared(other, written(tmp_path / "wrong", DATA[::-1]))
    files = [on_another_machine(other)]
    both = r"m\.gguf: gpu2: it sent other bytes .*; gpu3: it sent other bytes"
    with sender(first) as one, pytest.raises(SourceError, match=both):
        fetch(folders, files, [FileSender(node, one.address) for node in ("gpu2", "gpu3")])
    assert all_files(folders.cache) == set()


def test_a_digest_that_the_head_says_later_is_waited_for(
    folders: NodeFolders, file: TransferFile, head: FileSender
) -> None:
    def wait(_seconds: float) -> None:
        receiver.digests = {file.id: hashlib.sha256(DATA).hexdigest()}

    receiver = FileReceiver(StartFileTransfer(SPEC, [replace(file, sha256="")], [head], KEY), folders, wait)
    assert Path(receiver.run().paths[file.path]).read_bytes() == DATA


def test_without_a_digest_nothing_is_taken(
    folders: NodeFolders, other: TransferFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_receiver, "PATIENCE_S", 0.1)
    file = on_another_machine(replace(other, sha256=""))
    with sender(shared(other)) as head, pytest.raises(SourceError, match=r"has not said the sha256 of m\.gguf in time"):
        fetch(folders, [file], [head])
    assert not list(folders.cache.rglob("m.gguf"))
