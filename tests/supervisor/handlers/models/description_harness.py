"""The parts of a supervisor that describe model files, over a real registry. No process, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from protocol.messages.model_details import (
    CopyModel,
    Described,
    DescribeModels,
    FileFacts,
    ModelDetails,
    StartDescription,
)
from protocol.messages.models import GetModel, ListModels
from supervisor.handlers.model_targets import ModelTargets
from supervisor.handlers.models.file_headers import FileHeaders
from supervisor.handlers.models.model_details import ModelDescriptions
from supervisor.handlers.models.model_lists import ModelLists
from supervisor.internal_errors import InternalErrors
from supervisor.scheduler.view_values import ModelView

LLAMA = FileFacts("gguf", "llama", 1000, 2048, 16, template="t", metadata={"a": 1})


class DescriptionHarness:
    """The parts of a supervisor that descriptions use, over a real registry."""

    def __init__(self, models: Any) -> None:
        self.answers: dict[int, Any] = {}
        self.orders: list[StartDescription] = []
        self.ended: list[Callable[[str], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.now = 100.0
        self.killed: list[str] = []
        self.loaded: dict[str, ModelView] = {}
        self.where: Mapping[str, list[str]] | None = None
        """Model → the nodes that have its files."""
        self.view = SimpleNamespace(closing=False, model=self.loaded.get, serving=self.loaded.get)
        self.models = models
        settings: Any = SimpleNamespace(cache_dir="/nowhere", peer_silence=10.0)
        loop: Any = SimpleNamespace(
            call_later=lambda seconds, then: self.timers.append((seconds, then)), now=lambda: self.now
        )
        jobs: Any = SimpleNamespace(start=self._start, dismiss=lambda _job: None, give_up=self.killed.append)
        calls: Any = SimpleNamespace(
            reply=lambda _peer, number, report: self._answer(number, report),
            answer_when_written=lambda _peer, number, report: self.answers.update({number: report}),
        )
        view, errors = cast("Any", self.view), InternalErrors()
        headers = FileHeaders(settings, loop, jobs, view)
        targets = ModelTargets(models, view)
        details = ModelDescriptions(settings, loop, models, targets, headers, view, calls, errors)
        self.lists = ModelLists(models, headers, view, calls, errors, lambda: self.where)
        self.handlers = {**headers.handlers(), **details.handlers(), **self.lists.handlers()}

    def _start(self, _module: str, ended: Any, order: StartDescription) -> str:
        self.orders.append(order)
        job = f"j{len(self.orders)}"
        self.ended.append(lambda why: ended(job, why))
        return job

    def _answer(self, number: int, report: Any) -> None:
        assert number not in self.answers, "answered twice"
        self.answers[number] = report

    def ask(self, number: int, name: str = "") -> None:
        self.handlers[DescribeModels]("g1", DescribeModels(number, name), b"")

    def copy(self, number: int, source: str, destination: str) -> None:
        self.handlers[CopyModel]("g1", CopyModel(number, source, destination), b"")

    def described(self, *facts: FileFacts) -> None:
        job = f"j{len(self.orders)}"
        self.handlers[Described](job, Described(list(facts)), b"")
        self.ended[-1]("exit 0")

    def list_models(self, number: int, *, show_all: bool = False) -> None:
        self.handlers[ListModels]("g1", ListModels(number, show_all), b"")

    def get_model(self, number: int, name: str) -> None:
        self.handlers[GetModel]("g1", GetModel(number, name), b"")

    def report(self, number: int) -> list[ModelDetails]:
        report: list[ModelDetails] = self.answers[number]
        return report


def fire(harness: DescriptionHarness, seconds: float = 3600.0) -> None:
    """Fire every timer that was set for less than this many seconds."""
    timers, harness.timers = harness.timers, []
    for after, then in timers:
        if after < seconds:
            then()
