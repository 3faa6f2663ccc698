"""Models in detail: which files a job reads, when, and what is answered when it fails. No process, no clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.model_details import (
    CopyModel,
    Described,
    DescribeModels,
    FileFacts,
    ModelDetails,
    StartDescription,
)
from protocol.messages.models import GetModel, ListModels
from protocol.messages.peers import EngineReady
from supervisor.handlers.file_headers import FileHeaders
from supervisor.handlers.model_details import TIMEOUT_S, ModelDescriptions, copy_model, gpu_layers
from supervisor.handlers.model_lists import HEADER_WAIT_S, ModelLists
from supervisor.models import header_reads
from supervisor.models.header_reads import FileKey, HeaderReads
from supervisor.models.registry import ModelRegistry
from supervisor.processes import jobs
from supervisor.runtime.internal_errors import InternalErrors
from tests.supervisor.models.model_files import MakeModels
from tests.support.models.tiny_models import tiny_models

LLAMA = FileFacts("gguf", "llama", 1000, 2048, 16, template="t", metadata={"a": 1})


class DescriptionHarness:
    """The parts of a supervisor that descriptions use, over a real registry."""

    def __init__(self, models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[int, Any] = {}
        self.orders: list[StartDescription] = []
        self.ended: list[Callable[[str], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.now = 100.0
        self.killed: list[str] = []
        self.scheduler = SimpleNamespace(closing=False, models={})
        self.supervisor = cast(
            "Any",
            SimpleNamespace(
                models=models,
                settings=SimpleNamespace(cache_dir="/nowhere", peer_silence=10.0),
                scheduler=self.scheduler,
                errors=InternalErrors(),
                loop=SimpleNamespace(
                    call_later=lambda seconds, then: self.timers.append((seconds, then)), now=lambda: self.now
                ),
                processes=SimpleNamespace(give_up=self.killed.append),
                running_names={},
                calls=SimpleNamespace(
                    answer_when_written=lambda _peer, number, report: self.answers.update({number: report})
                ),
            ),
        )
        headers = FileHeaders()
        lists = ModelLists(headers)
        self.handlers = {**headers.handlers(), **ModelDescriptions(headers).handlers(), **lists.handlers()}
        monkeypatch.setattr(jobs, "start", self._start)
        monkeypatch.setattr(jobs, "dismiss", lambda _supervisor, _job: None)
        monkeypatch.setattr(jobs, "reply", lambda _supervisor, _peer, number, report: self._answer(number, report))

    def _start(self, supervisor: Any, _module: str, ended: Any, order: StartDescription) -> tuple[str, str]:
        self.orders.append(order)
        job = f"j{len(self.orders)}"
        self.ended.append(lambda why: ended(supervisor, job, why))
        return job, job

    def _answer(self, number: int, report: Any) -> None:
        assert number not in self.answers, "answered twice"
        self.answers[number] = report

    def ask(self, number: int, name: str = "") -> None:
        self.handlers[DescribeModels](self.supervisor, "g1", DescribeModels(number, name), b"")

    def described(self, *facts: FileFacts) -> None:
        job = f"j{len(self.orders)}"
        self.handlers[Described](self.supervisor, job, Described(list(facts)), b"")
        self.ended[-1]("exit 0")

    def list_models(self, number: int, *, show_all: bool = False) -> None:
        self.handlers[ListModels](self.supervisor, "g1", ListModels(number, show_all), b"")

    def get_model(self, number: int, name: str) -> None:
        self.handlers[GetModel](self.supervisor, "g1", GetModel(number, name), b"")

    def report(self, number: int) -> list[ModelDetails]:
        report: list[ModelDetails] = self.answers[number]
        return report


@pytest.fixture
def harness(make: MakeModels, extra: Path, monkeypatch: pytest.MonkeyPatch) -> DescriptionHarness:
    for name in ("tiny-chat.gguf", "tiny-embed.gguf"):
        (extra / name).symlink_to(tiny_models() / "models" / name)
    return DescriptionHarness(make(), monkeypatch)


def fire(harness: DescriptionHarness, seconds: float = 3600.0) -> None:
    """Let the time of every timer be over that was set for less than so many seconds."""
    timers, harness.timers = harness.timers, []
    for after, then in timers:
        if after < seconds:
            then()


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


def test_a_list_looks_at_the_disk_once_not_for_each_model(
    harness: DescriptionHarness, extra: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        (extra / f"more-{number}.gguf").symlink_to(tiny_models() / "models" / "tiny-chat.gguf")
    refreshes: list[int] = []
    refresh = ModelRegistry._refresh
    monkeypatch.setattr(
        ModelRegistry, "_refresh", lambda *given, **more: (refreshes.append(1), refresh(*given, **more))[1]
    )
    harness.ask(1)
    harness.described(*[LLAMA] * 12)
    assert len(harness.report(1)) == 12
    assert len(refreshes) < 5


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


def test_a_slow_disk_delays_a_call_only_so_long(harness: DescriptionHarness) -> None:
    harness.ask(1, "extra.tiny-chat")
    fire(harness)
    assert harness.report(1)[0].facts == FileFacts()
    harness.described(LLAMA)
    fire(harness)
    harness.ask(2, "extra.tiny-chat")
    assert harness.report(2)[0].facts == LLAMA, "what came late counts for the next call"


def test_while_the_server_stops_no_job_is_started(harness: DescriptionHarness) -> None:
    harness.scheduler.closing = True
    harness.ask(1)
    assert len(harness.report(1)) == 2
    assert not harness.orders


def test_a_model_that_is_not_here(harness: DescriptionHarness) -> None:
    for name, words in (("Qwen3-0.6B-GGUF", "not downloaded"), ("No-Such", "not found")):
        with pytest.raises(LemonbusError, match=words) as raised:
            harness.ask(1, name)
        assert raised.value.failure.code is Code.MODEL_NOT_FOUND
    assert not harness.orders


def test_a_model_that_vanishes_meanwhile(harness: DescriptionHarness, extra: Path) -> None:
    harness.ask(1, "extra.tiny-chat")
    (extra / "tiny-chat.gguf").unlink()
    harness.described(LLAMA)
    failure = harness.answers[1]
    assert isinstance(failure, Failure)
    assert failure.code is Code.MODEL_NOT_FOUND


def test_a_loaded_model_has_its_engines_figures(harness: DescriptionHarness) -> None:
    facts = EngineReady(slots=4, context=1024, engine_pid=1, backend_url="", seconds=0.5, gpu_layers=99)
    process = SimpleNamespace(facts=facts, serves=True)
    spec = harness.supervisor.models.spec("extra.tiny-chat", {"ctx_size": 1024})
    harness.scheduler.models["extra.tiny-chat"] = SimpleNamespace(
        process=process,
        spec=spec,
        state=SimpleNamespace(value="ready"),
        grants={1: 1, 2: 2},
        memory=77,
        ttl=60.0,
        expires_at=None,
    )
    harness.ask(1, "extra.tiny-chat")
    harness.described(LLAMA)
    (details,) = harness.report(1)
    assert (details.context, details.gpu_layers, details.granted, details.memory) == (1024, 17, 2, 77)
    assert (details.state, details.entry.loaded, details.options["ctx_size"]) == ("ready", True, 1024)
    assert details.expires_at == pytest.approx(time.time() + 60, abs=30)


@pytest.mark.parametrize(
    ("options", "used", "layers", "shown"),
    [
        ({}, 0, 16, 0),
        ({}, 99, 16, 17),
        ({}, 99, 0, 99),
        ({"gpu_layers": 35}, 99, 16, 35),
        ({"gpu_layers": 0}, 0, 16, 0),
    ],
)
def test_layers_on_a_gpu(options: dict[str, int | float | str], used: int, layers: int, shown: int) -> None:
    assert gpu_layers(options, used, layers) == shown


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
    harness.now += header_reads.PAUSE_S + 1
    harness.ask(3)
    harness.described(LLAMA)
    assert harness.report(3)[0].facts.parameters == LLAMA.parameters


def test_a_job_that_goes_on_is_not_replaced(harness: DescriptionHarness) -> None:
    harness.ask(1)
    deadlines = harness.timers[:]
    harness.handlers[Described](harness.supervisor, "j1", Described([LLAMA]), b"")
    harness.timers = deadlines
    fire(harness, TIMEOUT_S)
    assert harness.killed == []
    harness.described(FileFacts("gguf"))
    assert [details.facts.architecture for details in harness.report(1)] == ["llama", ""]


def test_jobs_that_cannot_be_killed_do_not_become_more_and_more(harness: DescriptionHarness) -> None:
    for number in range(5):
        harness.ask(number)
        fire(harness)
        harness.now += header_reads.PAUSE_S + 1
    assert len(harness.orders) == header_reads.MAX_STUCK
    assert len(harness.answers) == 5
    harness.ended[0]("SIGKILL")
    harness.ask(7)
    assert len(harness.orders) == header_reads.MAX_STUCK + 1, "a process that has ended at last makes way"
    harness.described(LLAMA, LLAMA)
    assert [details.facts.parameters for details in harness.report(7)] == [1000, 1000]


def test_a_job_reads_a_bounded_number_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_reads, "MAX_PATHS", 2)
    a, b, c = (FileKey(name, 1, 1) for name in "abc")
    reads = HeaderReads()
    assert reads.next_files([a, b, a, c], 0.0) == [a, b]
    reads.begin("j1", [a, b])
    assert reads.next_files([a, b, c], 0.0) == []
    assert reads.received("j1", [LLAMA, LLAMA])
    reads.ended("j1")
    assert reads.next_files([a, b, c], 0.0) == [c]


def test_copies_are_in_the_report(harness: DescriptionHarness) -> None:
    copy_model(harness.supervisor, "g1", CopyModel(1, "extra.tiny-chat", "mine:latest"), b"")
    assert harness.answers[1] == "extra.tiny-chat"
    harness.supervisor.models.user_names.set_default("mine")
    harness.ask(2, "mine")
    harness.described(LLAMA)
    (details,) = harness.report(2)
    assert (details.entry.given_names, details.is_default) == (["mine"], True)
    for wrong in ("", ":latest", "a\n", " a"):
        with pytest.raises(LemonbusError):
            copy_model(harness.supervisor, "g1", CopyModel(3, "mine", wrong), b"")


def contexts(harness: DescriptionHarness, number: int) -> list[tuple[int, int]]:
    return [(entry.context_length, entry.max_context_window) for entry in harness.answers[number] if entry.downloaded]


def test_a_list_waits_a_moment_for_headers_and_then_no_more(harness: DescriptionHarness) -> None:
    harness.list_models(1)
    assert 1 not in harness.answers
    harness.described(LLAMA, FileFacts("gguf"))
    assert contexts(harness, 1) == [(4096, 2048), (4096, 0)]
    harness.list_models(2, show_all=True)
    assert contexts(harness, 2) == contexts(harness, 1), "they are known"
    assert all(not entry.context_length for entry in harness.answers[2] if not entry.downloaded)


def test_a_list_is_answered_without_the_header_of_a_slow_disk(harness: DescriptionHarness) -> None:
    harness.list_models(1)
    assert [seconds for seconds, _ in harness.timers if seconds == HEADER_WAIT_S]
    fire(harness, 1.0)
    assert contexts(harness, 1) == [(4096, 0), (4096, 0)]
    harness.described(LLAMA, LLAMA)
    harness.list_models(2)
    assert contexts(harness, 2) == [(4096, 2048)] * 2


def test_one_model_has_the_context_of_its_engine(harness: DescriptionHarness) -> None:
    facts = EngineReady(slots=4, context=1024, engine_pid=1, backend_url="", seconds=0.5)
    process = SimpleNamespace(facts=facts, serves=True)
    harness.scheduler.models["extra.tiny-chat"] = SimpleNamespace(process=process)
    harness.get_model(1, "extra.tiny-chat")
    harness.described(LLAMA)
    entry = harness.answers[1]
    assert (entry.loaded, entry.context_length, entry.max_context_window) == (True, 1024, 2048)


def test_a_context_that_is_not_configured_is_the_trained_one(harness: DescriptionHarness) -> None:
    harness.supervisor.models.options.save("extra.tiny-chat", {"ctx_size": 0})
    harness.get_model(1, "extra.tiny-chat")
    harness.described(LLAMA)
    assert (harness.answers[1].context_length, harness.answers[1].max_context_window) == (2048, 2048)
