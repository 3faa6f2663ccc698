"""The two jobs of a transfer against each other, as real processes: one of them is killed in the middle, or told something new."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.messages.model_transfer import (
    FileSender,
    FilesFound,
    FilesPresent,
    FindFiles,
    ShareFiles,
    SharingFailed,
    SharingFiles,
    StartFileTransfer,
    TransferFile,
    TransferProgress,
    UseSenders,
)
from protocol.wire import envelope
from protocol.wire.bus_address import ClusterMembership, write_membership
from tests.support.waiting import wait_for
from tests.workers.jobs.holding_relay import HoldingRelay
from tests.workers.jobs.job_runner import JobRunner
from tests.workers.jobs.model_transfer.transfer_jobs import (
    DATA,
    HELD_AFTER,
    MEMBER,
    RECEIVE,
    SHARE,
    SPEC,
    check_content,
    fetched,
    order,
    share,
)
from tests.workers.jobs.transfer_files import KEY, transfer_file, written


def test_a_model_is_copied_and_the_node_knows_it_later(
    head_jobs: JobRunner, node_jobs: JobRunner, files: list[TransferFile], tmp_path: Path
) -> None:
    node_jobs.start("f1", module=RECEIVE)
    node_jobs.send("f1", order(files, share(head_jobs, files)))
    result = fetched(node_jobs)
    check_content(result, files)
    copied = [message for message in node_jobs.messages["f1"] if isinstance(message, TransferProgress)]
    assert copied[-1] == TransferProgress("m", len(DATA) + 5000, len(DATA) + 5000)
    node_jobs.dismiss("f1")
    node_jobs.start("f2", module=RECEIVE)
    absent = transfer_file(written(tmp_path / "x", b"x"), "d2/x")
    node_jobs.send("f2", FindFiles({"m": files, "other": [*files, replace(absent, path="/of-the-head/x")], "none": []}))
    assert node_jobs.until("f2", FilesFound) == FilesFound([result, FilesPresent("none", {})])
    node_jobs.dismiss("f2")
    head_jobs.dismiss("s1")


def test_another_sender_goes_on_when_one_is_killed(
    head_jobs: JobRunner, node_jobs: JobRunner, files: list[TransferFile]
) -> None:
    first, second = share(head_jobs, files), share(head_jobs, files, "s2")
    with HoldingRelay(first.address, HELD_AFTER) as relay, HoldingRelay(second.address, len(DATA)) as other:
        node_jobs.start("f1", module=RECEIVE)
        node_jobs.send("f1", order(files, FileSender("s1", relay.address), FileSender("s2", other.address)))
        wait_for(relay.holding.is_set, "a part has arrived")
        head_jobs.kill("s1")
        relay.released.set()
        check_content(fetched(node_jobs), files)
        assert 0 < other.forwarded < len(DATA), "only the rest was sent"
    node_jobs.dismiss("f1")


def test_a_receiver_that_is_killed_is_continued_by_the_next(
    head_jobs: JobRunner, node_jobs: JobRunner, files: list[TransferFile]
) -> None:
    sender = share(head_jobs, files)
    with HoldingRelay(sender.address, HELD_AFTER) as relay, HoldingRelay(sender.address, len(DATA)) as other:
        node_jobs.start("f1", module=RECEIVE)
        node_jobs.send("f1", order(files, FileSender("s1", relay.address)))
        wait_for(relay.holding.is_set, "a part has arrived")
        while not node_jobs.until("f1", TransferProgress).done:
            pass
        node_jobs.kill("f1")
        node_jobs.start("f2", module=RECEIVE)
        node_jobs.send("f2", order(files, FileSender("s1", other.address)))
        check_content(fetched(node_jobs, "f2"), files)
        assert 0 < other.forwarded < len(DATA), "only the rest was sent"
    node_jobs.dismiss("f2")


def test_a_transfer_goes_on_under_the_next_supervisors(
    head_jobs: JobRunner, node_jobs: JobRunner, files: list[TransferFile]
) -> None:
    sender = share(head_jobs, files)
    with HoldingRelay(sender.address, HELD_AFTER) as relay:
        node_jobs.start("f1", module=RECEIVE)
        begun = order(files, FileSender("s1", relay.address))
        node_jobs.send("f1", begun)
        wait_for(relay.holding.is_set, "a part has arrived")
        while not node_jobs.until("f1", TransferProgress).done:
            pass
        node_jobs.lose_supervisor()
        head_jobs.lose_supervisor()
        assert envelope.decode(node_jobs.get_supervisor("f1").order)[0] == begun
        assert isinstance(envelope.decode(head_jobs.get_supervisor("s1").order)[0], ShareFiles)
        assert head_jobs.until("s1", SharingFiles) == SharingFiles(sender.address)
        assert 0 < node_jobs.until("f1", TransferProgress).done < len(DATA)
        relay.released.set()
        check_content(fetched(node_jobs), files)
    node_jobs.dismiss("f1")
    head_jobs.dismiss("s1")


def test_a_sender_that_is_stopped_is_replaced_by_one_that_is_named_later(
    head_jobs: JobRunner, node_jobs: JobRunner, files: list[TransferFile]
) -> None:
    first = share(head_jobs, files)
    with HoldingRelay(first.address, HELD_AFTER) as relay:
        node_jobs.start("f1", module=RECEIVE)
        node_jobs.send("f1", order(files, FileSender("s1", relay.address)))
        wait_for(relay.holding.is_set, "a part has arrived")
        head_jobs.kill("s1")
        relay.released.set()
        node_jobs.send("f1", UseSenders([share(head_jobs, files, "s2")]))
        check_content(fetched(node_jobs), files)
    node_jobs.dismiss("f1")


MEMBERSHIPS = [
    pytest.param(None, "the address of its node: a server without a cluster has no tcp sockets", id="no cluster"),
    pytest.param("0.0.0.0", "0.0.0.0: that means all addresses of the machine", id="all addresses"),
    pytest.param("192.0.2.1", "192.0.2.1: Cannot assign requested address", id="of another machine"),
]


@pytest.mark.parametrize(("listen", "why"), MEMBERSHIPS)
def test_a_sender_listens_at_the_address_of_its_node_alone(head_jobs: JobRunner, listen: str | None, why: str) -> None:
    write_membership(head_jobs.runtime, ClusterMembership("192.0.2.1:7000", MEMBER, listen) if listen else None)
    head_jobs.start("s1", module=SHARE)
    head_jobs.send("s1", ShareFiles(KEY))
    failed = head_jobs.until("s1", SharingFiles, SharingFailed)
    assert isinstance(failed, SharingFailed)
    assert failed.why.startswith(f"no socket can listen at {why}")
    head_jobs.dismiss("s1")


def test_a_wrong_key_copies_nothing(head_jobs: JobRunner, node_jobs: JobRunner, files: list[TransferFile]) -> None:
    sender = share(head_jobs, files)
    node_jobs.start("f1", module=RECEIVE)
    with HoldingRelay(sender.address, 0) as relay:
        node_jobs.send("f1", StartFileTransfer(SPEC, files, [FileSender("s1", relay.address)], "wrong"))
        wait_for(relay.holding.is_set, "the sender has answered")
    node_jobs.kill("f1")
    assert not [path for path in (node_jobs.cache.parent / "hub").rglob("*") if path.is_file() and path.stat().st_size]
