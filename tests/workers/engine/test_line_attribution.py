"""Which request a line of an engine's output belongs to, and when the output must be read to know it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from workers.engine.line_attribution import LATE_LINE_S, LineAttribution


class StartedAttempt:
    """The part of an attempt that these tests need."""

    def __init__(self, label: str) -> None:
        self.run = self
        self.label = label


class Requests:
    """Requests that begin and end at times that a test sets; ``read`` has the label of each reading of the output."""

    def __init__(self) -> None:
        self.now = 10.0
        self.attempts: dict[str, StartedAttempt] = {}
        self.later: list[Callable[[], None]] = []
        self.read: list[str] = []
        self.attribution = LineAttribution(self.attempts, lambda: self.now, self.later.append)
        self.attribution.read_output = lambda: self.read.append(self.attribution())

    def start(self, *labels: str) -> None:
        for label in labels:
            self.attribution.before_start()
            self.attempts[label] = StartedAttempt(label)

    def end(self, *labels: str) -> None:
        for label in labels:
            self.attribution.before_end(label)
            del self.attempts[label]

    def end_iteration(self) -> None:
        while self.later:
            self.later.pop(0)()


@pytest.fixture
def requests() -> Requests:
    return Requests()


def test_a_line_belongs_to_the_request_that_runs_or_just_ran(requests: Requests) -> None:
    assert requests.attribution() == ""
    requests.start("a")
    assert requests.attribution() == "a"
    requests.end("a")
    requests.end_iteration()
    requests.now += LATE_LINE_S - 0.001
    assert requests.attribution() == "a"
    requests.now += LATE_LINE_S
    assert requests.attribution() == ""


def test_lines_of_requests_that_follow_each_other_closely_keep_their_ids(requests: Requests) -> None:
    for label in ("a", "b", "c"):
        requests.start(label)
        requests.now += 0.001
        requests.end(label)
        requests.end_iteration()
        assert requests.read[-1] == label, "what the engine wrote until the end"
        assert requests.attribution() == label, "what it writes after its answer"
    assert requests.read == ["", "a", "a", "b", "b", "c"]


def test_a_line_of_several_requests_belongs_to_none(requests: Requests) -> None:
    requests.start("a", "b")
    assert requests.attribution() == ""
    requests.end("a")
    assert requests.attribution() == "", "it may be a late line of the one that has ended"
    requests.now += LATE_LINE_S
    assert requests.attribution() == "b"


def test_a_line_after_two_that_ended_together_belongs_to_neither(requests: Requests) -> None:
    requests.start("a", "b")
    requests.end("a", "b")
    requests.end_iteration()
    assert (requests.attribution(), requests.read[-1]) == ("", "")


def test_the_output_is_read_before_the_requests_that_run_change(requests: Requests) -> None:
    requests.start("a", "b", "c")
    assert requests.read == ["", "a"], "among several, a line belongs to none anyway"
    requests.end("c", "b")
    assert requests.read == ["", "a", ""]
    requests.now += LATE_LINE_S
    requests.end("a")
    assert requests.read == ["", "a", ""], "its answer leaves first"
    requests.now += LATE_LINE_S  # this process had to wait for a processor
    requests.end_iteration()
    assert requests.read == ["", "a", "", "a"]


def test_what_a_request_causes_is_not_read_for_the_one_before_it(requests: Requests) -> None:
    requests.start("a")
    requests.end("a")
    requests.start("b")
    assert requests.read == ["", "a"], "what was there when the second began"
    requests.end_iteration()
    assert requests.read == ["", "a"], "what came then is read with the next batch"
    assert requests.attribution() == "b"
