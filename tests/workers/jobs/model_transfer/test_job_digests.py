"""What both jobs of a transfer do when bytes are wrong, or when no node sends them."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from msgspec.structs import replace

from protocol.failures import Code
from protocol.messages.model_files import CheckpointSource
from protocol.messages.model_transfer import (
    FileRoot,
    FileSender,
    FilesPresent,
    SharingFiles,
    StartFileTransfer,
    TransferFailed,
    TransferFile,
    TransferProgress,
    UseSenders,
)
from tests.support.fakes.hub import Hub, gguf
from tests.support.waiting import wait_for
from tests.workers.jobs.holding_relay import HoldingRelay
from tests.workers.jobs.job_runner import JobRunner
from tests.workers.jobs.model_transfer.transfer_jobs import (
    DATA,
    HELD_AFTER,
    RECEIVE,
    SPEC,
    check_content,
    fetched,
    order,
    share,
)
from tests.workers.jobs.transfer_files import KEY, HubFile, hub_file, written


def test_digests_come_from_the_head_and_not_from_who_sends(
    head_jobs: JobRunner, node_jobs: JobRunner, files: list[TransferFile]
) -> None:
    unknown = [replace(file, blob="", sha256="", root=FileRoot.CACHE) for file in files]
    sender = share(head_jobs, unknown)
    digested: SharingFiles = head_jobs.until("s1", SharingFiles)
    while len(digested.digests) < len(files):
        digested = head_jobs.until("s1", SharingFiles)
    assert digested.digests == {file.id: hashlib.sha256(DATA[: file.size]).hexdigest() for file in files}
    node_jobs.start("f1", module=RECEIVE)
    node_jobs.send("f1", order(unknown, sender))
    while node_jobs.until("f1", TransferProgress).done < unknown[0].size:
        pass
    assert not list(node_jobs.cache.rglob("tiny.gguf")), "nothing has its name before the head has said its digest"
    node_jobs.send("f1", UseSenders([sender], digested.digests))
    check_content(fetched(node_jobs), files)
    node_jobs.dismiss("f1")


def test_a_node_downloads_what_no_node_sends(head_jobs: JobRunner, tmp_path: Path) -> None:
    model = gguf(100_000)
    on_head = hub_file(tmp_path / "head" / "hub2", model)
    file = replace(on_head.file, path=f"/of-the-head{on_head.file.path}")
    sender = share(head_jobs, [file])
    os.utime(on_head.path, (1, 1))  # so the sender says at once that it has changed
    folder = tmp_path / "node" / "hub"
    with (
        Hub({"shop/tiny": {"tiny.gguf": model}}) as hub,
        JobRunner(tmp_path / "node" / "cache", {"HF_HUB_CACHE": str(folder), "HF_ENDPOINT": hub.url}) as node_jobs,
    ):
        downloads = [CheckpointSource("shop/tiny:tiny.gguf")]
        node_jobs.start("f1", module=RECEIVE)
        node_jobs.send("f1", StartFileTransfer(SPEC, [file], [sender], KEY, downloads))
        place = folder / file.name
        assert fetched(node_jobs) == FilesPresent("m", {file.path: str(place)})
        assert place.read_bytes() == model
        assert [name for name, _ in hub.transfers] == ["tiny.gguf"]
        node_jobs.dismiss("f1")

        shutil.rmtree(folder)
        hub.status = 503
        node_jobs.start("f2", module=RECEIVE)
        node_jobs.send("f2", StartFileTransfer(SPEC, [file], [sender], KEY, downloads))
        failed = node_jobs.until("f2", FilesPresent, TransferFailed)
        assert isinstance(failed, TransferFailed)
        assert (
            "s1: the file has changed there; model m could not be downloaded: Hugging Face: " in failed.failure.message
        )
        node_jobs.dismiss("f2")


def test_a_file_that_changes_while_it_is_sent_is_not_taken(
    head_jobs: JobRunner, node_jobs: JobRunner, files: list[TransferFile], hub_model: HubFile
) -> None:
    with HoldingRelay(share(head_jobs, files).address, HELD_AFTER) as relay:
        node_jobs.start("f1", module=RECEIVE)
        node_jobs.send("f1", order(files, FileSender("s1", relay.address)))
        wait_for(relay.holding.is_set, "a part has arrived")
        written(hub_model.path.resolve(), DATA[::-1])  # of the same size and time
        head_jobs.kill("s1")
        relay.released.set()
        # The sender that comes next finds nothing wrong: the digest does.
        node_jobs.send("f1", UseSenders([share(head_jobs, files, "s2")]))
        failed = node_jobs.until("f1", FilesPresent, TransferFailed)
    assert isinstance(failed, TransferFailed)
    assert failed.failure.code is Code.DOWNLOAD_FAILED
    assert failed.failure.message == (
        "the files of m could not be copied to this node: tiny.gguf: s2: it sent other bytes (their sha256 is not that of the file)"
    )
    assert not list((node_jobs.cache.parent / "hub").rglob("*gguf*"))
    node_jobs.dismiss("f1")


def test_of_two_senders_of_one_file_the_one_that_is_right_is_not_refused(
    head_jobs: JobRunner, node_jobs: JobRunner, files: list[TransferFile], hub_model: HubFile
) -> None:
    right = hub_model.path.read_bytes()
    written(hub_model.path.resolve(), DATA[::-1])
    with HoldingRelay(share(head_jobs, files).address, HELD_AFTER) as relay:
        node_jobs.start("f1", module=RECEIVE)
        node_jobs.send("f1", order(files, FileSender("s1", relay.address)))
        wait_for(relay.holding.is_set, "a part has arrived")
        written(hub_model.path.resolve(), right)
        head_jobs.kill("s1")
        relay.released.set()
        node_jobs.send("f1", UseSenders([share(head_jobs, files, "s2")]))
        result = fetched(node_jobs)
    check_content(result, files)
    assert result.refused == []
    node_jobs.dismiss("f1")
