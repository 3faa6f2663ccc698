"""Followers share one question a second; a slow one gets what has changed since it read last, and each end is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from gevent.queue import Queue
from msgspec import structs

from gateway.http.request_context import CONTEXT_KEY, RequestContext
from gateway.overview import followers as module
from gateway.overview.followers import MAX_FOLLOWERS, MAX_FOLLOWERS_OF_KEY, Follower, OverviewFollowers
from protocol.config.api_keys import ApiKey, digest
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.model_overview import ModelOverview
from protocol.messages.overview import GetHistory, HistoryReport, OverviewReport, Sample, ServerOverview
from tests.support.merge_patch import patched

EMPTY = OverviewReport(
    time=0.0,
    server=ServerOverview("1.0", "ok", 1.0, 4),
    running=0,
    waiting=0,
    memory={},
    disks={},
    models={"idle": ModelOverview("ready", slots=4)},
    downloads={},
    requests={},
    ended={},
    sample=None,
)
DEADLINE_S = 10.0


class ReportingSession:
    """Answers each question with the report that the test gives next."""

    def __init__(self) -> None:
        self.reports: Queue[OverviewReport | Failure] = Queue()
        self.asked = 0
        self.history = HistoryReport(10, [])
        self.admission = self

    def admit(self) -> None:
        """Admit everything."""

    def call(self, _env: Any, build: Callable[[int], Any], _report: type) -> Any:
        if isinstance(build(1), GetHistory):
            return self.history
        self.asked += 1
        report = self.reports.get(timeout=DEADLINE_S)
        if isinstance(report, Failure):
            raise report.raised()
        return report


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> ReportingSession:
    monkeypatch.setattr(module, "INTERVAL_S", 0.0)
    return ReportingSession()


@pytest.fixture
def followers(session: ReportingSession) -> Iterator[OverviewFollowers]:
    made = OverviewFollowers(session)  # type: ignore[arg-type]
    yield made
    session.reports.put(Failure(Code.DRAINING, "the test is over"))


def key_of(name: str, **rights: Any) -> ApiKey:
    return ApiKey(name=name, sha256=digest(name), **rights)


def context_of(key: ApiKey | None = None, *, admin: bool = True) -> RequestContext:
    context = RequestContext("r.1", api_key=key, keys_needed=key is not None)
    context.check_admin = lambda: admin
    return context


def follow(followers: OverviewFollowers, context: RequestContext | None = None) -> Follower:
    return followers.follow({CONTEXT_KEY: context or context_of()})


def parsed(piece: bytes) -> list[tuple[str, Any]]:
    events = []
    for block in piece.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def at(time: float, **fields: Any) -> OverviewReport:
    return structs.replace(EMPTY, time=time, **fields)


def answer(session: ReportingSession, *reports: OverviewReport | Failure) -> None:
    """Let these reports arrive; the next question waits for its own."""
    before = session.asked
    for report in reports:
        session.reports.put(report)
    with gevent.Timeout(DEADLINE_S):
        while session.reports.qsize() or session.asked < before + len(reports):
            gevent.sleep(0)
        gevent.sleep(0)


def test_the_first_event_is_whole_and_later_ones_are_patches(
    followers: OverviewFollowers, session: ReportingSession
) -> None:
    session.history = HistoryReport(10, [Sample(5.0, 1)])
    session.reports.put(at(1.0))
    stream = iter(follow(followers))
    (first, history) = parsed(next(stream))
    assert first[0] == "overview"
    assert first[1]["models"] == {"idle": {"state": "ready", "slots": 4}}
    assert history == ("history", {"step_s": 10, "samples": [{"at": 5.0, "running": 1}]})
    session.reports.put(at(2.0, running=3))
    assert parsed(next(stream)) == [("patch", {"time": 2.0, "running": 3})]
    session.reports.put(at(3.0, running=3))
    assert parsed(next(stream)) == [("patch", {"time": 3.0})], "an idle model costs nothing"


def test_samples_come_once_and_only_new_ones(followers: OverviewFollowers, session: ReportingSession) -> None:
    session.history = HistoryReport(10, [Sample(5.0)])
    session.reports.put(at(1.0, sample=Sample(5.0)))
    stream = iter(follow(followers))
    next(stream)
    for time, sample, shown in ((2.0, 5.0, []), (3.0, 15.0, [15.0]), (4.0, 15.0, []), (5.0, 25.0, [25.0])):
        session.reports.put(at(time, sample=Sample(sample)))
        assert [data["at"] for name, data in parsed(next(stream)) if name == "sample"] == shown


def test_a_slow_follower_misses_seconds_and_nothing_queues(
    followers: OverviewFollowers, session: ReportingSession
) -> None:
    session.reports.put(at(1.0))
    slow = iter(follow(followers))
    (_, state), _ = parsed(next(slow))
    busy = {"busy": ModelOverview("loading")}
    answer(session, at(2.0, models=busy), at(3.0, models=busy | EMPTY.models), at(4.0, running=1, models=busy))
    ((name, patch),) = parsed(next(slow))
    assert (name, patch["time"]) == ("patch", 4.0)
    state = patched(state, patch)
    assert (state["running"], state["models"]) == (1, {"busy": {"state": "loading"}})


def test_all_followers_share_the_question_and_the_patch(
    followers: OverviewFollowers, session: ReportingSession
) -> None:
    session.reports.put(at(1.0))
    streams = [iter(follow(followers)) for _ in range(3)]
    assert len({next(stream) for stream in streams}) == 1
    answer(session, at(2.0, running=1))
    pieces = [next(stream) for stream in streams]
    assert pieces[0] is pieces[1] or pieces[0] == pieces[1]
    assert session.asked == 3, "one for each second, and one that waits"


def test_each_key_gets_its_own(followers: OverviewFollowers, session: ReportingSession) -> None:
    both = {"a-1": ModelOverview("ready"), "b-1": ModelOverview("ready")}
    contexts = [context_of(), context_of(key_of("a", models=["a-*"]), admin=False)]
    session.reports.put(at(1.0, models=both))
    streams = [iter(follow(followers, context)) for context in contexts]
    shown = [parsed(next(stream))[0][1] for stream in streams]
    assert [set(each["models"]) for each in shown] == [{"a-1", "b-1"}, {"a-1"}]
    assert shown[1]["access"] == {"admin": False, "key": "a", "keys_needed": True}


def test_a_key_that_gets_other_rights_is_sent_everything_again(
    followers: OverviewFollowers, session: ReportingSession
) -> None:
    context = context_of(key_of("a"), admin=True)
    session.reports.put(at(1.0))
    stream = iter(follow(followers, context))
    next(stream)
    context.check_admin = lambda: False
    session.reports.put(at(2.0))
    ((name, data),) = parsed(next(stream))
    assert (name, data["access"]["admin"]) == ("overview", False)


def test_a_key_that_is_revoked_ends_its_stream_and_no_other(
    followers: OverviewFollowers, session: ReportingSession
) -> None:
    context = context_of(key_of("a"))
    session.reports.put(at(1.0))
    revoked, other = iter(follow(followers, context)), iter(follow(followers))
    next(revoked), next(other)
    context.withdrawal = lambda _: Failure(Code.UNAUTHORIZED, "the API key a has been revoked")
    answer(session, at(2.0))
    ((name, error),) = parsed(next(revoked))
    assert (name, error["code"], error["request_id"]) == ("error", "unauthorized", "r.1")
    assert list(revoked) == []
    assert parsed(next(other))[0][0] == "patch"


def test_a_server_that_ends_is_told_and_later_followers_begin_anew(
    followers: OverviewFollowers, session: ReportingSession
) -> None:
    session.reports.put(at(1.0))
    streams = [iter(follow(followers)) for _ in range(2)]
    for stream in streams:
        next(stream)
    session.reports.put(Failure(Code.DRAINING, "the server is stopping"))
    for stream in streams:
        assert [(name, error["code"]) for name, error in parsed(next(stream))] == [("error", "draining")]
        assert list(stream) == []
    session.reports.put(at(9.0))
    assert parsed(next(iter(follow(followers))))[0][1]["time"] == 9.0


def test_nothing_is_asked_while_no_client_follows(followers: OverviewFollowers, session: ReportingSession) -> None:
    stream = iter(follow(followers))
    gevent.sleep(0)
    assert session.asked == 0
    session.reports.put(at(1.0))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    asked = []
    for time in (2.0, 3.0):
        session.reports.put(at(time))
        for _ in range(20):
            gevent.sleep(0)
        asked.append(session.asked)
    assert asked[0] <= 2, "one question may have been under way"
    assert asked[1] == asked[0]


def test_followers_are_limited(followers: OverviewFollowers, session: ReportingSession) -> None:
    session.reports.put(at(1.0))

    def begin(context: RequestContext) -> Iterator[bytes]:
        stream = iter(follow(followers, context))
        next(stream)
        return stream

    def refusal(context: RequestContext) -> Code:
        with pytest.raises(LemonbusError) as caught:
            follow(followers, context)
        return caught.value.failure.code

    of_key = [begin(context_of(key_of("a"), admin=False)) for _ in range(MAX_FOLLOWERS_OF_KEY)]
    assert refusal(context_of(key_of("a"), admin=False)) is Code.RATE_LIMITED
    of_admin = [begin(context_of()) for _ in range(MAX_FOLLOWERS - MAX_FOLLOWERS_OF_KEY)]
    assert refusal(context_of()) is Code.OVERLOADED
    of_admin.pop().close()  # type: ignore[attr-defined]
    assert refusal(context_of(key_of("b"), admin=False)) is Code.OVERLOADED, "the last places are for administrators"
    of_admin.append(begin(context_of()))
    of_key.pop().close()  # type: ignore[attr-defined]
    of_admin.append(begin(context_of()))


def test_followers_that_know_different_seconds_get_different_patches(
    followers: OverviewFollowers, session: ReportingSession
) -> None:
    session.reports.put(at(1.0))
    slow, quick = iter(follow(followers)), iter(follow(followers))
    (_, state), _ = parsed(next(slow))
    next(quick)
    answer(session, at(2.0, running=5))
    next(quick)
    answer(session, at(3.0, running=5))
    assert parsed(next(quick)) == [("patch", {"time": 3.0})]
    ((_, patch),) = parsed(next(slow))
    assert patched(state, patch)["running"] == 5
