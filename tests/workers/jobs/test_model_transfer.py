"""The two jobs of a transfer against each other, as real processes: one of them is killed in the middle, or told something new."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.failures import Code
from protocol.messages.model_transfer import (
    FetchFailed,
    FilesCopied,
    FileSender,
    FilesFetched,
    FilesFound,
    FindFiles,
    ShareFiles,
    SharingFailed,
    SharingFiles,
    StartFileTransfer,
    TransferFile,
    UseSources,
)
from protocol.models.recipes import ModelSpec
from protocol.wire import envelope
from protocol.wire.bus_address import ClusterMembership, KeyPair, MemberKeys, write_membership
from tests.support.waiting import wait_for
from tests.workers.jobs.holding_relay import HoldingRelay
from tests.workers.jobs.job_runner import JobRunner
from tests.workers.jobs.transfer_files import HOST, KEY, HubFile, content, hub_file, shared, transfer_file, written

SHARE, FETCH = "workers.jobs.share_files", "workers.jobs.fetch_files"
SPEC = ModelSpec("m", "shop/tiny", "llamacpp", "cpu", "llm", "/of-the-head/m.gguf")
MEMBER = MemberKeys("s" * 40, KeyPair("p" * 40, "q" * 40))
DATA = content(16_000_000)
HELD_AFTER = 1_000_000


@pytest.fixture
def hub(tmp_path: Path) -> HubFile:
    return hub_file(tmp_path / "head" / "hub", DATA)


@pytest.fixture
def files(tmp_path: Path, hub: HubFile) -> list[TransferFile]:
    """The files of a model under paths that only the head has."""
    lexicon = transfer_file(written(tmp_path / "head" / "extra" / "a.bin", DATA[:5000]), "d1/a.bin")
    return [replace(file, path=f"/of-the-head{file.path}") for file in (hub.file, lexicon)]


@pytest.fixture
def head(tmp_path: Path) -> Iterator[JobRunner]:
    with JobRunner(tmp_path / "head" / "cache", {}) as runner:
        write_membership(runner.runtime, ClusterMembership(f"{HOST}:7000", MEMBER, HOST))
        yield runner


@pytest.fixture
def node(tmp_path: Path) -> Iterator[JobRunner]:
    with JobRunner(tmp_path / "node" / "cache", {"HF_HUB_CACHE": str(tmp_path / "node" / "hub")}) as runner:
        yield runner


def share(head: JobRunner, files: list[TransferFile], name: str = "s1") -> FileSender:
    """Start a sender of these files; return where it is."""
    head.start(name, module=SHARE)
    on_head = [shared(file, Path(file.path.removeprefix("/of-the-head"))) for file in files]
    head.send(name, ShareFiles(KEY, on_head))
    sharing: SharingFiles = head.until(name, SharingFiles)
    return FileSender(name, sharing.address)


def order(files: list[TransferFile], *senders: FileSender) -> StartFileTransfer:
    return StartFileTransfer(SPEC, files, list(senders), KEY)


def fetched(node: JobRunner, name: str = "f1") -> FilesFetched:
    result = node.until(name, FilesFetched, FetchFailed)
    assert isinstance(result, FilesFetched), result
    return result


def check_content(result: FilesFetched, files: list[TransferFile]) -> None:
    assert list(result.paths) == [file.path for file in files]
    for file in files:
        assert Path(result.paths[file.path]).read_bytes() == DATA[: file.size]


def test_a_model_is_copied_and_the_node_knows_it_later(
    head: JobRunner, node: JobRunner, files: list[TransferFile], tmp_path: Path
) -> None:
    node.start("f1", module=FETCH)
    node.send("f1", order(files, share(head, files)))
    result = fetched(node)
    check_content(result, files)
    copied = [message for message in node.messages["f1"] if isinstance(message, FilesCopied)]
    assert copied[-1] == FilesCopied("m", len(DATA) + 5000, len(DATA) + 5000)
    node.dismiss("f1")
    node.start("f2", module=FETCH)
    absent = transfer_file(written(tmp_path / "x", b"x"), "d2/x")
    node.send("f2", FindFiles({"m": files, "other": [*files, replace(absent, path="/of-the-head/x")], "none": []}))
    assert node.until("f2", FilesFound) == FilesFound([result, FilesFetched("none", {})])
    node.dismiss("f2")
    head.dismiss("s1")


def test_another_sender_goes_on_when_one_is_killed(head: JobRunner, node: JobRunner, files: list[TransferFile]) -> None:
    first, second = share(head, files), share(head, files, "s2")
    with HoldingRelay(first.address, HELD_AFTER) as relay, HoldingRelay(second.address, len(DATA)) as other:
        node.start("f1", module=FETCH)
        node.send("f1", order(files, FileSender("s1", relay.address), FileSender("s2", other.address)))
        wait_for(relay.holding.is_set, "a part has arrived")
        head.kill("s1")
        relay.released.set()
        check_content(fetched(node), files)
        assert 0 < other.forwarded < len(DATA), "only the rest was sent"
    node.dismiss("f1")


def test_a_receiver_that_is_killed_is_continued_by_the_next(
    head: JobRunner, node: JobRunner, files: list[TransferFile]
) -> None:
    sender = share(head, files)
    with HoldingRelay(sender.address, HELD_AFTER) as relay, HoldingRelay(sender.address, len(DATA)) as other:
        node.start("f1", module=FETCH)
        node.send("f1", order(files, FileSender("s1", relay.address)))
        wait_for(relay.holding.is_set, "a part has arrived")
        while not node.until("f1", FilesCopied).done:
            pass
        node.kill("f1")
        node.start("f2", module=FETCH)
        node.send("f2", order(files, FileSender("s1", other.address)))
        check_content(fetched(node, "f2"), files)
        assert 0 < other.forwarded < len(DATA), "only the rest was sent"
    node.dismiss("f2")


def test_a_file_that_changes_while_it_is_sent_is_not_taken(
    head: JobRunner, node: JobRunner, files: list[TransferFile], hub: HubFile
) -> None:
    with HoldingRelay(share(head, files).address, HELD_AFTER) as relay:
        node.start("f1", module=FETCH)
        node.send("f1", order(files, FileSender("s1", relay.address)))
        wait_for(relay.holding.is_set, "a part has arrived")
        written(hub.path.resolve(), DATA[::-1])  # of the same size and time
        head.kill("s1")
        relay.released.set()
        # The sender that comes next finds nothing wrong: the digest does.
        node.send("f1", UseSources([share(head, files, "s2")]))
        failed = node.until("f1", FilesFetched, FetchFailed)
    assert isinstance(failed, FetchFailed)
    assert failed.failure.code is Code.DOWNLOAD_FAILED
    assert failed.failure.message == (
        "the files of m could not be copied to this node: tiny.gguf: it arrived damaged "
        "(its digest differs from that of the sending node)"
    )
    assert not list((node.cache.parent / "hub").rglob("*gguf*"))
    node.dismiss("f1")


def test_a_transfer_goes_on_under_the_next_supervisors(
    head: JobRunner, node: JobRunner, files: list[TransferFile]
) -> None:
    sender = share(head, files)
    with HoldingRelay(sender.address, HELD_AFTER) as relay:
        node.start("f1", module=FETCH)
        begun = order(files, FileSender("s1", relay.address))
        node.send("f1", begun)
        wait_for(relay.holding.is_set, "a part has arrived")
        node.lose_supervisor()
        head.lose_supervisor()
        assert envelope.decode(node.get_supervisor("f1").order)[0] == begun
        assert isinstance(envelope.decode(head.get_supervisor("s1").order)[0], ShareFiles)
        assert head.until("s1", SharingFiles) == SharingFiles(sender.address)
        assert 0 < node.until("f1", FilesCopied).done < len(DATA)
        relay.released.set()
        check_content(fetched(node), files)
    node.dismiss("f1")
    head.dismiss("s1")


def test_a_sender_that_is_stopped_is_replaced_by_one_that_is_named_later(
    head: JobRunner, node: JobRunner, files: list[TransferFile]
) -> None:
    first = share(head, files)
    with HoldingRelay(first.address, HELD_AFTER) as relay:
        node.start("f1", module=FETCH)
        node.send("f1", order(files, FileSender("s1", relay.address)))
        wait_for(relay.holding.is_set, "a part has arrived")
        head.kill("s1")
        relay.released.set()
        node.send("f1", UseSources([share(head, files, "s2")]))
        check_content(fetched(node), files)
    node.dismiss("f1")


MEMBERSHIPS = [
    pytest.param(None, "the address of its node: a server without a cluster has no tcp sockets", id="no cluster"),
    pytest.param("0.0.0.0", "0.0.0.0: that means all addresses of the machine", id="all addresses"),
    pytest.param("192.0.2.1", "192.0.2.1: Cannot assign requested address", id="of another machine"),
]


@pytest.mark.parametrize(("listen", "why"), MEMBERSHIPS)
def test_a_sender_listens_at_the_address_of_its_node_alone(head: JobRunner, listen: str | None, why: str) -> None:
    write_membership(head.runtime, ClusterMembership("192.0.2.1:7000", MEMBER, listen) if listen else None)
    head.start("s1", module=SHARE)
    head.send("s1", ShareFiles(KEY))
    failed = head.until("s1", SharingFiles, SharingFailed)
    assert isinstance(failed, SharingFailed)
    assert failed.why.startswith(f"no socket can listen at {why}")
    head.dismiss("s1")


def test_a_wrong_key_copies_nothing(head: JobRunner, node: JobRunner, files: list[TransferFile]) -> None:
    sender = share(head, files)
    node.start("f1", module=FETCH)
    with HoldingRelay(sender.address, 0) as relay:
        node.send("f1", StartFileTransfer(SPEC, files, [FileSender("s1", relay.address)], "wrong"))
        wait_for(relay.holding.is_set, "the sender has answered")
    node.kill("f1")
    assert not [path for path in (node.cache.parent / "hub").rglob("*") if path.is_file() and path.stat().st_size]
