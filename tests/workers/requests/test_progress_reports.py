"""How often an engine's progress is reported, and the lines in which engines print it."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.config.settings import Settings
from protocol.ids import RequestKey
from protocol.messages.work import AttemptProgress, Run
from protocol.models.recipes import ModelSpec
from workers.backends.engine_facts import EngineProgress
from workers.backends.registry import backend_class
from workers.requests.attempt import Attempt, AttemptPhase
from workers.requests.progress_reports import ProgressReports


class ProgressLog:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def info(self, event: str, **fields: Any) -> None:
        assert event == "request progress"
        self.lines.append(fields)


class Reports:
    """Reports with a clock that a test sets."""

    def __init__(self, *phases: AttemptPhase) -> None:
        self.now = 100.0
        self.log = ProgressLog()
        self.reported: list[AttemptProgress] = []
        self.attempts: dict[RequestKey, Attempt] = {}
        for number, phase in enumerate(phases, 1):
            run = Run("g1", number, 1, "m", "images/generations", f"req-{number}")
            attempt = Attempt(run, b"", None, None, lambda: self.now)  # type: ignore[arg-type]
            attempt.phase = phase
            self.attempts[attempt.key] = attempt
        self.reports = ProgressReports(self.attempts, self.reported.append, lambda: self.now)

    def report(self, done: int, after: float = 0.0) -> Attempt | None:
        self.now += after
        return self.reports.report(EngineProgress(done, 20, "steps"), self.log)  # type: ignore[arg-type]


def test_the_first_report_is_told_at_once_and_the_others_once_a_second() -> None:
    reports = Reports(AttemptPhase.WAITING, AttemptPhase.RUNNING)
    for done in range(1, 8):
        attempt = reports.report(done, after=0.4)
        assert attempt is not None
        assert attempt.run.label == "req-2"
    assert [(reported.number, reported.label, reported.done, reported.total) for reported in reports.reported] == [
        (2, "req-2", 1, 20),
        (2, "req-2", 4, 20),
        (2, "req-2", 7, 20),
    ]
    assert reports.log.lines == []


def test_the_log_has_a_line_every_ten_seconds() -> None:
    reports = Reports(AttemptPhase.RUNNING)
    for done in range(1, 15):
        reports.report(done, after=2.0)
    assert [line["done"] for line in reports.log.lines] == [6, 11]
    assert reports.log.lines[0] == {"request_id": "req-1", "done": 6, "total": 20, "unit": "steps"}


@pytest.mark.parametrize(
    "phases",
    [
        [],
        [AttemptPhase.WAITING],
        [AttemptPhase.RUNNING, AttemptPhase.STOPPING],
        [AttemptPhase.RUNNING] * 2,
        [AttemptPhase.WAITING, AttemptPhase.ENDED],
    ],
)
def test_progress_of_an_unknown_request_is_not_reported(phases: list[AttemptPhase]) -> None:
    reports = Reports(*phases)
    assert reports.report(1) is None
    assert not reports.reported


@pytest.mark.parametrize(
    ("recipe", "line", "wanted"),
    [
        ("sd-cpp", b"  |=====>          | 3/20 - 2.10s/it\x1b[K", EngineProgress(3, 20, "steps")),
        ("sd-cpp", b"  |==============| 20/20 - 1.51it/s\x1b[K", EngineProgress(20, 20, "steps")),
        ("sd-cpp", b"  | 3/20 - 2.10s/it", EngineProgress(3, 20, "steps")),
        ("sd-cpp", b"  |=======>     | 1/2 - 10.61MB/s\x1b[K", None),
        ("sd-cpp", b"[INFO ] stable-diffusion.cpp:3401 - generating image: 1/1 - seed 3", None),
        ("whispercpp", b"whisper_print_progress_callback: progress =  45%", EngineProgress(45, 100, "%")),
        ("whispercpp", b"progress = 100%", EngineProgress(100, 100, "%")),
        ("whispercpp", b"no progress", None),
        ("llamacpp", b"progress = 100%", None),
    ],
)
def test_what_engines_print(recipe: str, line: bytes, wanted: EngineProgress | None) -> None:
    spec = ModelSpec("m", "c", recipe, "", "llm", "/m")
    assert backend_class(recipe)(spec, Settings()).progress(line) == wanted
