"""The headers of model files: which files a job reads, when, and the answers if it fails or hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.model_details import (
    Described,
    FileFacts,
)
from supervisor.handlers.models import file_headers
from supervisor.handlers.models.file_headers import FileKey, HeaderReads
from supervisor.handlers.models.model_details import TIMEOUT_S
from tests.supervisor.handlers.models.description_harness import LLAMA, DescriptionHarness, fire
from tests.support.models.tiny_models import tiny_models


def test_files_are_read_once(harness: DescriptionHarness, extra: Path) -> None:
    harness.ask(1)
    harness.ask(2)
    assert [order.paths for order in harness.orders] == [[str(extra / f"tiny-{n}.gguf") for n in ("chat", "embed")]]
    assert harness.answers == {}
    harness.described(LLAMA, FileFacts("gguf"))
    chat, embed = harness.report(1)
    assert harness.report(2) == [chat, embed]
    assert (chat.entry.id, chat.facts.parameters, chat.path) == ("extra.tiny-chat", 1000, str(extra / "tiny-chat.gguf"))
    assert (chat.facts.template, chat.facts.metadata) == ("", {}), "a list is short"
    assert (chat.context, chat.gpu_layers, chat.forced_json) == (4096, 0, True)
    harness.ask(3, "extra.tiny-chat")
    assert harness.report(3)[0].facts == LLAMA
    assert len(harness.orders) == 1


def test_a_file_that_was_changed_is_read_again(harness: DescriptionHarness, extra: Path) -> None:
    harness.ask(1, "extra.tiny-chat")
    harness.described(LLAMA)
    (extra / "tiny-chat.gguf").unlink()
    (extra / "tiny-chat.gguf").symlink_to(tiny_models() / "models" / "tiny-embed.gguf")
    harness.ask(2, "extra.tiny-chat")
    assert len(harness.orders) == 2
    harness.described(FileFacts("gguf"))
    assert harness.report(2)[0].facts == FileFacts("gguf")


def test_a_job_that_dies_leaves_no_call_waiting(harness: DescriptionHarness) -> None:
    harness.ask(1)
    harness.ended[-1]("signal 9")
    assert [details.facts for details in harness.report(1)] == [FileFacts()] * 2
    assert len(harness.orders) == 1, "an answered call starts no other job"


def test_what_a_job_that_died_did_not_read_is_read_for_the_next_call(harness: DescriptionHarness) -> None:
    harness.ask(1, "extra.tiny-chat")
    harness.ask(2, "extra.tiny-embed")
    harness.ended[-1]("signal 9")
    assert harness.report(1)[0].facts == FileFacts()
    assert 2 not in harness.answers, "its file was not in that job"
    harness.described(FileFacts("gguf"))
    assert harness.report(2)[0].facts == FileFacts("gguf")
    harness.ask(3, "extra.tiny-chat")
    harness.described(LLAMA)
    assert harness.report(3)[0].facts == LLAMA


def test_a_slow_disk_delays_a_call_for_a_limited_time(harness: DescriptionHarness) -> None:
    harness.ask(1, "extra.tiny-chat")
    fire(harness)
    assert harness.report(1)[0].facts == FileFacts()
    harness.described(LLAMA)
    fire(harness)
    harness.ask(2, "extra.tiny-chat")
    assert harness.report(2)[0].facts == LLAMA, "what came late counts for the next call"


def test_while_the_server_stops_no_job_is_started(harness: DescriptionHarness) -> None:
    harness.view.closing = True
    harness.ask(1)
    assert len(harness.report(1)) == 2
    assert not harness.orders


def test_a_job_that_hangs_is_replaced_and_its_file_is_not_tried_for_a_while(harness: DescriptionHarness) -> None:
    harness.ask(1)
    fire(harness, TIMEOUT_S)
    assert harness.killed == ["j1"]
    assert [len(order.paths) for order in harness.orders] == [2, 1], "another job reads what is behind the file"
    harness.ended[0]("SIGKILL")
    harness.described(FileFacts("gguf"))
    chat, embed = harness.report(1)
    assert (chat.facts, embed.facts) == (FileFacts(), FileFacts("gguf"))
    harness.ask(2)
    assert harness.report(2) == harness.report(1), "no call waits for it again"
    assert len(harness.orders) == 2
    harness.now += file_headers.PAUSE_S + 1
    harness.ask(3)
    harness.described(LLAMA)
    assert harness.report(3)[0].facts.parameters == LLAMA.parameters


def test_a_job_that_goes_on_is_not_replaced(harness: DescriptionHarness) -> None:
    harness.ask(1)
    deadlines = harness.timers[:]
    harness.handlers[Described]("j1", Described([LLAMA]), b"")
    harness.timers = deadlines
    fire(harness, TIMEOUT_S)
    assert harness.killed == []
    harness.described(FileFacts("gguf"))
    assert [details.facts.architecture for details in harness.report(1)] == ["llama", ""]


def test_the_number_of_jobs_that_cannot_be_killed_is_bounded(harness: DescriptionHarness) -> None:
    for number in range(5):
        harness.ask(number)
        fire(harness)
        harness.now += file_headers.PAUSE_S + 1
    assert len(harness.orders) == file_headers.MAX_STUCK
    assert len(harness.answers) == 5
    harness.ended[0]("SIGKILL")
    harness.ask(7)
    assert len(harness.orders) == file_headers.MAX_STUCK + 1, "a process that has ended at last makes way"
    harness.described(LLAMA, LLAMA)
    assert [details.facts.parameters for details in harness.report(7)] == [1000, 1000]


def test_a_job_reads_a_bounded_number_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_headers, "MAX_PATHS", 2)
    a, b, c = (FileKey(name, 1, 1) for name in "abc")
    reads = HeaderReads()
    assert reads.next_files([a, b, a, c], 0.0) == [a, b]
    reads.begin("j1", [a, b])
    assert reads.next_files([a, b, c], 0.0) == []
    assert reads.received("j1", [LLAMA, LLAMA])
    reads.ended("j1")
    assert reads.next_files([a, b, c], 0.0) == [c]
