"""The followers of the overview in this process: one call to the supervisor a second serves them all.

A follower that reads slowly misses seconds, and then gets what has changed since the last state that it was sent: nothing
queues. The call is repeated when another supervisor takes over, so followers only notice a pause.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import gevent
import msgspec
from gevent.event import Event

from gateway.access.connection_places import ConnectionPlaces
from gateway.api.common.server_sent_events import event
from gateway.http.request_context import CONTEXT_KEY, SOCKET_KEY, RequestContext, request_context
from gateway.internal_errors import INTERNAL_ERRORS
from gateway.overview.merge_patch import merge_patch
from gateway.overview.view import Viewer, overview_for, viewer_of
from protocol import ids
from protocol.failures import CLIENT_LEFT_CODES, Code, Failure, LemonbusError
from protocol.messages.overview import GetHistory, GetOverview, HistoryReport, OverviewReport

if TYPE_CHECKING:
    from gateway.bus.session import SupervisorSession

INTERVAL_S: Final = 1.0
MAX_FOLLOWERS: Final = 64
"""Followers of one process."""
MAX_FOLLOWERS_OF_KEY: Final = 8
"""Those with the same API key, unless it is an administrator's."""
CLOSE_TIMEOUT_S: Final = 0.5
"""Seconds that a follower has to read why its stream ends."""


class _State(NamedTuple):
    """What one viewer may see in one second."""

    viewer: Viewer
    second: int
    fields: dict[str, Any]


class _Feed:
    """Asks the supervisor every second, until no client follows or no answer is possible."""

    def __init__(self, session: SupervisorSession) -> None:
        self._session = session
        self.followers: set[Follower] = set()
        self.second = 0
        """How many reports have come."""
        self.report: OverviewReport | None = None
        self.failure: Failure | None = None
        """Why it has ended."""
        self.changed = Event()
        """Set, and replaced by another one, with each report and at the end."""
        self._states: dict[Viewer, _State] = {}
        self._patches: dict[tuple[Viewer, int], bytes] = {}
        """(Viewer, second that it knows) → the event that makes the current state of that one."""

    def run(self) -> None:
        """Ask until no client follows."""
        env = {CONTEXT_KEY: RequestContext(ids.request_label(None))}
        failure = Failure(Code.INTERNAL, "an internal error has ended this stream")
        try:
            while self.followers:
                begun = time.monotonic()
                self._publish(self._session.call(env, GetOverview, OverviewReport))
                gevent.sleep(max(0.0, begun + INTERVAL_S - time.monotonic()))
            failure = Failure(Code.CANCELLED, "no client follows")
        except LemonbusError as problem:
            failure = problem.failure
        except Exception as problem:  # noqa: BLE001 - logged and counted; each follower is told
            INTERNAL_ERRORS.log(problem, "the overview was not made")
        finally:
            self.failure = failure
            self._wake()
            gevent.spawn_later(CLOSE_TIMEOUT_S, self._cut)

    def _publish(self, report: OverviewReport) -> None:
        self.report, self.second = report, self.second + 1
        self._states.clear()
        self._patches.clear()
        self._wake()

    def _wake(self) -> None:
        former, self.changed = self.changed, Event()
        former.set()

    def _cut(self) -> None:
        """Break the connections of followers that do not read the end: the server's end must not wait for them."""
        for follower in self.followers:
            follower.cut()

    def state(self, viewer: Viewer, report: OverviewReport) -> _State:
        """Return what a viewer may see of the current report."""
        state = self._states.get(viewer)
        if state is None:
            fields = msgspec.to_builtins(overview_for(report, viewer))
            state = self._states[viewer] = _State(viewer, self.second, fields)
        return state

    def events(self, known: _State | None, state: _State) -> bytes:
        """Return the event that makes ``state`` of ``known``, which the viewer was sent last; None: nothing was."""
        if known is None or known.viewer != state.viewer:
            return event("overview", state.fields)
        key = state.viewer, known.second
        patch = self._patches.get(key)
        if patch is None:
            patch = self._patches[key] = event("patch", merge_patch(known.fields, state.fields))
        return patch


class OverviewFollowers:
    """All followers of this process."""

    def __init__(self, session: SupervisorSession) -> None:
        """No client follows."""
        self._session = session
        self._feed: _Feed | None = None
        self.places = ConnectionPlaces(
            MAX_FOLLOWERS, MAX_FOLLOWERS_OF_KEY, "clients", "follow the overview of this process"
        )

    def follow(self, env: dict[str, Any]) -> Follower:
        """Return the stream for a client. Raises why there can be none; what happens later is in the stream."""
        self._session.admission.admit()  # a stream that began now would end at once, with the server
        context = request_context(env)
        self.places.check(context)
        return Follower(self, env, context)

    def join(self, follower: Follower) -> _Feed:
        """Return what a follower follows from now on."""
        if self._feed is None or self._feed.failure is not None:
            self._feed = _Feed(self._session)
            gevent.spawn(self._feed.run)
        self._feed.followers.add(follower)
        return self._feed

    def leave(self, follower: Follower, feed: _Feed) -> None:
        """Cut a follower off no longer."""
        feed.followers.discard(follower)

    def history(self, env: dict[str, Any]) -> HistoryReport:
        """Return the samples of the last hour."""
        return self._session.call(env, GetHistory, HistoryReport)


class Follower:
    """``resp.stream`` of one client."""

    def __init__(self, followers: OverviewFollowers, env: dict[str, Any], context: RequestContext) -> None:
        """It takes its place when it is read."""
        self._followers, self._env, self._context = followers, env, context

    def cut(self) -> None:
        """Break the connection."""
        if SOCKET_KEY in self._env:
            self._env[SOCKET_KEY].cut()

    def __iter__(self) -> Iterator[bytes]:
        try:
            self._followers.places.check(self._context)
            with self._followers.places.taken(self._context):
                feed = self._followers.join(self)
                try:
                    yield from self._events(feed)
                finally:
                    self._followers.leave(self, feed)
        except LemonbusError as problem:
            failure = self._context.failure = problem.failure
            if failure.code not in CLIENT_LEFT_CODES:
                error = {"error": failure.message, "code": failure.code.value, "request_id": self._context.label}
                yield event("error", error)

    def _events(self, feed: _Feed) -> Iterator[bytes]:
        known: _State | None = None
        sampled_at = 0.0
        while True:
            changed, report = feed.changed, feed.report
            self._context.check_access()
            if feed.failure is not None:
                raise feed.failure.raised()
            if report is None or (known is not None and known.second == feed.second):
                changed.wait()
                continue
            state = feed.state(viewer_of(self._context), report)
            pieces = [feed.events(known, state)]
            if known is None:
                history = self._followers.history(self._env)
                pieces.append(event("history", history))
                sampled_at = history.samples[-1].at if history.samples else 0.0
            elif report.sample is not None and report.sample.at > sampled_at:
                pieces.append(event("sample", report.sample))
                sampled_at = report.sample.at
            known = state
            yield b"".join(pieces)
