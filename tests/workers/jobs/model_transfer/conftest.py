"""The folders of a node, and files that only the head has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.messages.model_transfer import FileSender, TransferFile
from protocol.wire.bus_address import ClusterMembership, write_membership
from tests.workers.jobs.job_runner import JobRunner
from tests.workers.jobs.model_transfer.receiving import DATA
from tests.workers.jobs.model_transfer.transfer_jobs import DATA as LARGE
from tests.workers.jobs.model_transfer.transfer_jobs import MEMBER
from tests.workers.jobs.transfer_files import HOST, HubFile, hub_file, sender, shared, transfer_file, written
from workers.jobs.model_transfer import file_receiver
from workers.jobs.model_transfer.file_places import NodeFolders
from workers.jobs.model_transfer.file_receiver import FileReceiver


@pytest.fixture
def folders(tmp_path: Path) -> NodeFolders:
    return NodeFolders(tmp_path / "node" / "hub", tmp_path / "node" / "cache")


@pytest.fixture
def hub(tmp_path: Path) -> HubFile:
    return hub_file(tmp_path / "head" / "hub", DATA)


@pytest.fixture
def other(tmp_path: Path) -> TransferFile:
    return transfer_file(written(tmp_path / "head" / "models" / "m.gguf", DATA))


@pytest.fixture(params=["hub", "other"])
def file(request: pytest.FixtureRequest, hub: HubFile, other: TransferFile, tmp_path: Path) -> TransferFile:
    """A file that is not where the head has it: this process is on another node."""
    chosen: TransferFile = hub.file if request.param == "hub" else other
    (tmp_path / "head").rename(tmp_path / "elsewhere")
    return chosen


@pytest.fixture
def on_head(file: TransferFile, tmp_path: Path) -> Path:
    return tmp_path / "elsewhere" / Path(file.path).relative_to(tmp_path / "head")


@pytest.fixture
def head(file: TransferFile, on_head: Path, tmp_path: Path) -> Iterator[FileSender]:
    with sender(shared(file, on_head)) as head:
        yield head


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where each transfer begins."""
    begins: list[int] = []
    transfer = FileReceiver._transfer

    def noted(
        receiver: FileReceiver,
        sender: FileSender,
        file: TransferFile,
        partial: file_receiver.PartialFile,
        sent_by: dict[str, None],
    ) -> None:
        begins.append(partial.tell())
        transfer(receiver, sender, file, partial, sent_by)

    monkeypatch.setattr(FileReceiver, "_transfer", noted)
    return begins


# The jobs as processes


@pytest.fixture
def hub_model(tmp_path: Path) -> HubFile:
    return hub_file(tmp_path / "head" / "hub", LARGE)


@pytest.fixture
def files(tmp_path: Path, hub_model: HubFile) -> list[TransferFile]:
    """The files of a model under paths that only the head has."""
    lexicon = transfer_file(written(tmp_path / "head" / "extra" / "a.bin", LARGE[:5000]), "d1/a.bin")
    return [replace(file, path=f"/of-the-head{file.path}") for file in (hub_model.file, lexicon)]


@pytest.fixture
def head_jobs(tmp_path: Path) -> Iterator[JobRunner]:
    with JobRunner(tmp_path / "head" / "cache", {}) as runner:
        write_membership(runner.runtime, ClusterMembership(f"{HOST}:7000", MEMBER, HOST))
        yield runner


@pytest.fixture
def node_jobs(tmp_path: Path) -> Iterator[JobRunner]:
    with JobRunner(tmp_path / "node" / "cache", {"HF_HUB_CACHE": str(tmp_path / "node" / "hub")}) as runner:
        yield runner
