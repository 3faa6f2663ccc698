"""Models for the start: how often each is tried, which are awaited meanwhile, and what is left of those that fail."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.messages.health import FailedModel
from protocol.messages.models import Loaded
from supervisor.lifecycle.preload import MAX_TRIES, ModelPreload, failed_for_good
from supervisor.persistence.server_record import ServerRecord
from supervisor.scheduler.model_states import ModelState

UNREADY = Failure(Code.LOAD_FAILED, "the engine exited with code 3")
BROKEN = Failure(Code.MODEL_UNUSABLE, "the file is not a model")


class FakeStart:
    """A start with fake loads and a fake clock."""

    def __init__(self, *names: str, unknown: str = "") -> None:
        self.loads: list[tuple[str, Callable[[object], None]]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.finished = 0
        self.repetitions: list[bool] = []
        self.troubled: list[FailedModel] = []
        self.record = ServerRecord()
        self.unknown = unknown
        loop = Mock(now=lambda: 0.0, call_later=lambda seconds, callback: self.timers.append((seconds, callback)))
        states = [SimpleNamespace(name="full." + name, state=ModelState.LOADING) for name in names[:1]]
        self.preload = ModelPreload(
            settings=Settings(),
            loop=loop,
            models=Mock(configuration=SimpleNamespace(preload=list(names))),
            targets=Mock(resolve=self._resolve),
            view=Mock(models=lambda: states, failed_models=lambda _now: self.troubled),
            internal_calls=Mock(load=self._load),
            decisions=Mock(),
            record=self.record,
        )
        self.preload.on_finished = self._finish

    def _resolve(self, name: str) -> Any:
        if name == self.unknown:
            raise Failure(Code.MODEL_NOT_FOUND, f"Model {name} not found").raised()
        return SimpleNamespace(name="full." + name)

    def _load(self, target: Any, then: Callable[[object], None], *, repeated: bool) -> None:
        self.repetitions.append(repeated)
        self.loads.append((target.name, then))

    def _finish(self) -> None:
        self.finished += 1

    def end_load(self, result: object) -> None:
        _, then = self.loads.pop(0)
        then(result)

    def awaited(self) -> list[tuple[str, str, str]]:
        return [(each.model, each.state, each.reason) for each in self.preload.awaited()]


def test_a_failure_is_final_if_repeating_does_not_change_it_or_after_several_tries() -> None:
    assert not failed_for_good(UNREADY, MAX_TRIES - 1)
    assert failed_for_good(UNREADY, MAX_TRIES)
    assert failed_for_good(BROKEN, 1)


def test_a_model_is_tried_again_after_growing_pauses_and_the_start_waits_for_it() -> None:
    start = FakeStart("a", "b")
    start.preload.load()
    assert start.awaited() == [("full.a", "loading", ""), ("full.b", "absent", "")]
    start.end_load(UNREADY)
    assert start.awaited()[0] == ("full.a", "loading", UNREADY.message)
    start.end_load(Loaded("full.b", "c", "llamacpp"))
    pauses = []
    while start.timers:
        pause, again = start.timers.pop()
        pauses.append(pause)
        assert [each[0] for each in start.awaited()] == ["full.a"]
        assert (start.finished, start.record.failed_at_start) == (0, {})
        again()
        start.end_load(UNREADY)
    assert pauses == [1.0, 2.0]
    assert start.repetitions == [False, False, True, True]
    assert (start.awaited(), start.finished) == ([], 1)
    assert start.record.failed_at_start == {"full.a": UNREADY}


def test_a_second_try_comes_no_earlier_than_that_of_a_request_and_may_succeed() -> None:
    start = FakeStart("a")
    start.preload.load()
    start.troubled = [FailedModel("full.b", UNREADY, 1, 70.0), FailedModel("full.a", UNREADY, 1, 7.5)]
    start.end_load(UNREADY)
    pause, again = start.timers.pop()
    assert pause == 7.5
    again()
    start.end_load(Loaded("full.a", "c", "llamacpp"))
    assert (start.awaited(), start.finished, start.record.failed_at_start) == ([], 1, {})


@pytest.mark.parametrize("code", [Code.UNLOADED, Code.DRAINING])
def test_a_load_that_was_ended_is_neither_repeated_nor_a_failure(code: Code) -> None:
    start = FakeStart("a")
    start.preload.load()
    start.end_load(Failure(code, "ended", retry_after=1))
    assert (start.timers, start.finished, start.record.failed_at_start) == ([], 1, {})


def test_an_unknown_model_is_not_tried_again() -> None:
    start = FakeStart("nope", "a", unknown="nope")
    start.preload.load()
    assert [each[0] for each in start.awaited()] == ["full.a"]
    start.end_load(Loaded("full.a", "c", "llamacpp"))
    assert (start.timers, start.finished) == ([], 1)
    assert list(start.record.failed_at_start) == ["nope"]


def test_without_models_for_the_start_it_is_over_at_once() -> None:
    start = FakeStart()
    start.preload.load()
    assert start.finished == 1
