"""The senders of model files as the supervisor runs them: where they are, their ends, and those of an earlier supervisor."""

from __future__ import annotations

from protocol.messages.model_transfer import (
    FileSender,
    SharingFailed,
)
from protocol.models.nodes import HEAD
from supervisor.node_files import file_senders
from supervisor.node_files.file_senders import FIRST_PAUSE_S, IDLE_S
from tests.supervisor.node_files.transfer_harness import AT_HEAD, TransferHarness, fetched


def test_a_node_that_has_the_files_sends_them_as_well(harness: TransferHarness) -> None:
    spec = harness.spec("m")
    harness.transfers.node_joined("a")
    harness.node_files.found("a", spec, {spec.path: "/n/m.gguf"})
    harness.node_files.found("away", spec, {spec.path: "/n/m.gguf"})
    harness.transfers.fetch("m", spec, "b")
    assert list(harness.shared("a").values()) == ["/n/m.gguf"]
    job = harness.fetching("b")
    harness.report(job)
    harness.share_at("10.0.0.2:7", "a")
    assert harness.senders_of(job) == [FileSender("a", "10.0.0.2:7")]
    harness.share_at(AT_HEAD.address)
    assert harness.senders_of(job) == [FileSender("a", "10.0.0.2:7"), AT_HEAD], "the one that sends now stays the first"
    harness.transfers.fetch("m", spec, "c")
    assert harness.fetching("c").order.senders[0] == AT_HEAD, "the other one is busy"


def test_a_sender_that_ends_is_replaced_and_receivers_learn_where_it_is(harness: TransferHarness) -> None:
    harness.transfers.fetch("m", harness.spec("m"), "gpu")
    harness.share_at(AT_HEAD.address)
    job = harness.fetching()
    harness.report(job)
    first = harness.sharing()
    harness.end(first.name, "SIGKILL")
    assert harness.senders_of(job) == []
    assert not harness.running(file_senders.MODULE)
    harness.later(FIRST_PAUSE_S)
    assert harness.sharing().order == first.order, "with the same key, and the same files"
    harness.share_at("10.0.0.1:8")
    assert harness.senders_of(job) == [FileSender(HEAD, "10.0.0.1:8")]


def test_a_sender_that_cannot_listen_is_tried_again_later_and_later(harness: TransferHarness) -> None:
    harness.transfers.fetch("m", harness.spec("m"), "gpu")
    for pause in (FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S):
        job = harness.sharing()
        harness.say(job, SharingFailed("no socket"))
        assert harness.dismissed[-1] == job.name
        harness.end(job.name)
        harness.later(pause - 0.01)
        assert not harness.running(file_senders.MODULE)
        harness.later(0.02)
    harness.share_at(AT_HEAD.address)
    harness.end(harness.sharing().name)
    harness.later(FIRST_PAUSE_S)
    assert harness.sharing()


def test_a_sender_ends_when_nobody_needs_it(harness: TransferHarness) -> None:
    harness.transfers.fetch("m", harness.spec("m"), "gpu")
    harness.share_at(AT_HEAD.address)
    fetched(harness, harness.fetching())
    harness.later(IDLE_S - 1)
    harness.transfers.fetch("other", harness.spec("other"), "gpu")
    harness.later(2)
    assert harness.sharing(), "it is needed again"
    fetched(harness, harness.fetching())
    harness.later(IDLE_S)
    assert harness.jobs == {}


def test_no_sender_is_started_while_the_server_ends(harness: TransferHarness) -> None:
    harness.transfers.fetch("m", harness.spec("m"), "gpu")
    harness.closing = True
    harness.end(harness.sharing().name)
    harness.later(IDLE_S)
    assert not harness.running(file_senders.MODULE)


def test_a_sender_that_is_taken_over_alone_sends_later_copies_with_its_key(harness: TransferHarness) -> None:
    harness.transfers.fetch("m", harness.spec("m"), "gpu")
    fetched(harness, harness.fetching())
    sender = harness.sharing()
    harness.begin()
    ended = harness.senders.take_over(sender.name, sender.order)
    assert ended is not None
    sender.ended = ended
    harness.share_at(AT_HEAD.address)
    harness.transfers.fetch("other", harness.spec("other"), "gpu")
    job = harness.fetching()
    assert (job.order.key, job.order.senders) == (sender.order.key, [AT_HEAD])
    assert list(harness.shared().values()) == [str(harness.folder / "other.gguf")]


def test_a_second_sender_of_a_node_is_not_taken_over(harness: TransferHarness) -> None:
    harness.transfers.fetch("m", harness.spec("m"), "gpu")
    sender = harness.sharing()
    assert harness.senders.take_over(sender.name, sender.order) is None
