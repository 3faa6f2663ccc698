"""A model that no node sends is downloaded on the node that lacks it: which content counts as the head's, and what a failure says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.messages.model_transfer import FileRoot, FilesPresent, StartFileTransfer, TransferFile
from tests.workers.jobs.model_transfer.receiving import DATA, SPEC
from tests.workers.jobs.transfer_files import KEY, HubFile, hub_file, sender, shared, transfer_file, written
from workers.jobs.errors import SourceError
from workers.jobs.model_transfer import file_receiver
from workers.jobs.model_transfer.file_places import NodeFolders
from workers.jobs.model_transfer.file_receiver import FileReceiver
from workers.jobs.progress import DownloadProgress

UNREACHABLE = "no node that has the files can be reached"

Download = Callable[[DownloadProgress], None]


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_receiver, "PATIENCE_BEFORE_DOWNLOAD_S", 0.1)
    monkeypatch.setattr(file_receiver, "PATIENCE_S", 0.2)


@pytest.fixture
def hub(tmp_path: Path) -> HubFile:
    """A file of the hub's cache, as the head has it."""
    made = hub_file(tmp_path / "head" / "hub", DATA)
    (tmp_path / "head").rename(tmp_path / "elsewhere")
    return made


@pytest.fixture
def member(tmp_path: Path) -> TransferFile:
    """A file of a wheel, as the head has it."""
    path = written(tmp_path / "head" / "models" / "tiny-1" / "m.gguf", DATA)
    return replace(transfer_file(path, "models/tiny-1/m.gguf", FileRoot.CACHE), path="/of-the-head/m.gguf")


def fetch(folders: NodeFolders, file: TransferFile, download: Download) -> FilesPresent:
    receiver = FileReceiver(StartFileTransfer(SPEC, [file], [], KEY), folders, lambda _seconds: None, download)
    fetched = receiver.run()
    assert receiver.done == receiver.total == len(DATA)
    return fetched


def download_of(path: Path, data: bytes) -> Download:
    def download(progress: DownloadProgress) -> None:
        progress.begin(path.name, 1, 1, len(data))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        progress.end()

    return download


def test_a_file_of_the_hub_gets_the_name_that_it_has_on_the_head(folders: NodeFolders, hub: HubFile) -> None:
    """The hub has another revision by now, with the same file."""
    blob = folders.hub / "models--shop--tiny" / "blobs" / hub.file.blob
    fetched = fetch(folders, hub.file, download_of(blob, DATA))
    assert fetched.paths == {hub.file.path: str(folders.hub / hub.file.name)}
    assert (folders.hub / hub.file.name).resolve() == blob


def test_a_file_of_a_wheel_gets_the_time_that_it_has_on_the_head(folders: NodeFolders, member: TransferFile) -> None:
    place = folders.cache / member.name
    assert fetch(folders, member, download_of(place, DATA)).paths == {member.path: str(place)}
    assert fetch(folders, member, download_of(place, b"")).paths, "it is there now"


def test_another_content_than_that_of_the_head_is_not_used(folders: NodeFolders, member: TransferFile) -> None:
    with pytest.raises(SourceError) as raised:
        fetch(folders, member, download_of(folders.cache / member.name, DATA[::-1]))
    assert str(raised.value) == f"{UNREACHABLE}; the download has another m.gguf than the head"


def test_a_failure_has_both_reasons(folders: NodeFolders, hub: HubFile) -> None:
    def download(_progress: DownloadProgress) -> None:
        raise SourceError("Hugging Face: it is down", "the details")

    with pytest.raises(SourceError) as raised:
        fetch(folders, hub.file, download)
    assert str(raised.value) == f"{UNREACHABLE}; Hugging Face: it is down"


def test_a_sender_that_is_back_after_a_failed_download_is_used(
    folders: NodeFolders, hub: HubFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_receiver, "PATIENCE_S", 30.0)
    on_head = tmp_path / "elsewhere" / hub.path.relative_to(tmp_path / "head")
    with sender(shared(hub.file, on_head)) as head:

        def download(_progress: DownloadProgress) -> None:
            receiver.senders = [head]
            raise SourceError("Hugging Face: it is down")

        order = StartFileTransfer(SPEC, [hub.file], [], KEY)
        receiver = FileReceiver(order, folders, lambda _seconds: None, download)
        assert receiver.run().paths == {hub.file.path: str(folders.hub / hub.file.name)}


def unused(_progress: DownloadProgress) -> None:
    pytest.fail("nothing is to be downloaded")


def test_what_a_node_sends_is_not_downloaded(folders: NodeFolders, hub: HubFile, tmp_path: Path) -> None:
    on_head = tmp_path / "elsewhere" / hub.path.relative_to(tmp_path / "head")
    with sender(shared(hub.file, on_head)) as head:
        receiver = FileReceiver(
            StartFileTransfer(SPEC, [hub.file], [head], KEY), folders, lambda _seconds: None, unused
        )
        assert receiver.run().paths


def test_a_file_that_no_download_has_fails_without_one(folders: NodeFolders, member: TransferFile) -> None:
    with pytest.raises(SourceError, match=UNREACHABLE):
        fetch(folders, replace(member, root=FileRoot.OTHER), unused)


def test_a_full_disk_is_not_filled_by_a_download(
    folders: NodeFolders, hub: HubFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: shutil._ntuple_diskusage(0, 0, 0))
    with pytest.raises(SourceError, match="not enough disk space"):
        fetch(folders, hub.file, unused)
