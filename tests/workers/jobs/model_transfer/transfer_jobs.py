"""The two jobs of a transfer as processes: a sender is started, a receiver is given its order, and what arrived is checked."""

from __future__ import annotations

from pathlib import Path

from protocol.messages.model_transfer import (
    FileSender,
    FilesPresent,
    ShareFiles,
    SharingFiles,
    StartFileTransfer,
    TransferFailed,
    TransferFile,
)
from protocol.models.recipes import ModelSpec
from protocol.wire.bus_address import KeyPair, MemberKeys
from tests.workers.jobs.job_runner import JobRunner
from tests.workers.jobs.transfer_files import KEY, content, shared

SHARE, RECEIVE = "workers.jobs.share_files", "workers.jobs.receive_files"
SPEC = ModelSpec("m", "shop/tiny", "llamacpp", "cpu", "llm", "/of-the-head/m.gguf")
MEMBER = MemberKeys("s" * 40, KeyPair("p" * 40, "q" * 40))
DATA = content(16_000_000)
HELD_AFTER = 1_000_000


def share(head: JobRunner, files: list[TransferFile], name: str = "s1") -> FileSender:
    """Start a sender of these files; return where it is. The files that have no digest are digested."""
    head.start(name, module=SHARE)
    on_head = [shared(file, Path(file.path.removeprefix("/of-the-head"))) for file in files]
    head.send(name, ShareFiles(KEY, on_head, [file.id for file in files if not (file.blob or file.sha256)]))
    sharing: SharingFiles = head.until(name, SharingFiles)
    return FileSender(name, sharing.address)


def order(files: list[TransferFile], *senders: FileSender) -> StartFileTransfer:
    return StartFileTransfer(SPEC, files, list(senders), KEY)


def fetched(node: JobRunner, name: str = "f1") -> FilesPresent:
    result = node.until(name, FilesPresent, TransferFailed)
    assert isinstance(result, FilesPresent), result
    return result


def check_content(result: FilesPresent, files: list[TransferFile]) -> None:
    assert list(result.paths) == [file.path for file in files]
    for file in files:
        assert Path(result.paths[file.path]).read_bytes() == DATA[: file.size]
