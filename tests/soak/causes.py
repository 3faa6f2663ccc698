"""Judges a whole soak on several machines: each error that a client got must be explained by what was done. Pure.

What a node lost or a killed engine says must have happened, and must have happened to that request's model. So a model on one
machine may not be disturbed by what happens to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from protocol.failures import Code
from protocol.models.nodes import HEAD
from tests.soak.history import EVERYWHERE, Failed, Fault, FaultKind

_SLACK_S: Final = 1.0
"""What was done and what follows are noted by different processes."""
_SOON_S: Final = 20.0
"""Within this time after the end of a fault, everything that it breaks has broken, also on a busy machine."""
_KNOWN_S: Final = 12.0
"""Within this time after a node was found lost, its clients know it; on a quiet machine within a hundredth of a second."""
_AGAIN_S: Final = 60.0
"""Within this time after the end of a fault, everything works again: models were loaded, pauses after failed loads are over."""

_BREAKS: Final = frozenset({Code.WORKER_GONE, Code.BACKEND_DIED, Code.HUNG, Code.LOST, Code.CONNECTION_LOST})
_ELSEWHERE: Final = frozenset({Code.SUPERVISOR_LOST, Code.DRAINING})
"""What only a gateway says that cannot reach the supervisor, or was given up by it."""
_WAITS: Final = frozenset({Code.STARTING, Code.OVERLOADED, Code.RETURNED})
"""What requests are refused with that waited too long for a supervisor."""


class Loss(NamedTuple):
    """A line of the log: a node is lost, or a worker is gone."""

    at: float
    node: str
    model: str
    why: str


def losses(lines: Iterable[Mapping[str, Any]], event: str) -> Iterator[Loss]:
    """Yield what the log says of an event; ends that were ordered are left out."""
    for line in lines:
        if line.get("event") == event and (line.get("level") == "error" or event == "node lost"):
            at = datetime.fromisoformat(str(line["ts"])).timestamp()
            yield Loss(at, str(line.get("node", HEAD)), str(line.get("model", "")), str(line.get("reason", "")))


class Causes:
    """The faults and the log of a soak. ``places``: model → the nodes where it may run."""

    def __init__(
        self, faults: list[Fault], lines: Iterable[Mapping[str, Any]], places: Mapping[str, frozenset[str]]
    ) -> None:
        self._faults, self._places = faults, places
        lines = list(lines)
        self._nodes_lost = list(losses(lines, "node lost"))
        gone = list(losses(lines, "worker gone"))
        self._workers_gone = [each for each in gone if not _is_node_loss(each.why)]
        self._lost_with_node = [each for each in gone if _is_node_loss(each.why)]

    def problems(self, failed: Iterable[Failed]) -> Iterator[str]:
        """Yield what the log or an answer says that is not true, or that should not have happened."""
        for loss in self._nodes_lost:
            if not self._fault(loss.at, loss.at, _SOON_S, {loss.node: {FaultKind.NODE}, HEAD: {FaultKind.SUPERVISOR}}):
                yield f"node {loss.node} was counted as lost for no reason: {loss}"
        for loss in self._lost_with_node:
            if f"node {loss.node} " not in loss.why:
                yield f"a worker was counted as gone with another node than its own: {loss}"
        for loss in self._workers_gone:
            kinds = {loss.node: {FaultKind.NODE, FaultKind.WORKER}}
            if not loss.model:  # one that has just started ends if no supervisor answers it
                kinds[HEAD] = {*kinds.get(HEAD, set()), FaultKind.SUPERVISOR}
            if not self._fault(loss.at, loss.at, _SOON_S, kinds, loss.model):
                yield f"a worker was counted as gone for no reason: {loss}"
        for each in failed:
            if wrong := self._why_wrong(each):
                yield f"{wrong}: {each}"

    def _why_wrong(self, failed: Failed) -> str:
        places = self._places[failed.model]
        if failed.code == Code.NODE_LOST:
            return self._why_not_lost(failed, places)
        if failed.code == Code.WORKER_GONE:
            gone = [each for each in self._workers_gone if each.model == failed.model and _during(failed, each.at)]
            return "" if gone else "no worker of the model was gone then"
        if failed.code == Code.LOST and (loss := self._better_reason(failed)):
            return f"it was not told that its node was lost {failed.ended - loss.at:.1f} s before"
        broke = failed.status == 200 or failed.code in _BREAKS
        kinds = {place: {FaultKind.NODE, FaultKind.WORKER, FaultKind.ENGINE} for place in places}
        if not broke:
            kinds = {place: {*of_place, FaultKind.DRAIN} for place, of_place in kinds.items()}
        if failed.code in (Code.UNLOADED, Code.RETURNED):
            kinds[EVERYWHERE] = {FaultKind.UNLOAD}
        if failed.code in _WAITS:
            kinds[HEAD] = {*kinds.get(HEAD, set()), FaultKind.SUPERVISOR}
        if failed.code in _ELSEWHERE:
            kinds = {}
        kinds[failed.place] = {*kinds.get(failed.place, set()), FaultKind.LINK}
        after = _SOON_S if broke else _AGAIN_S
        if self._fault(failed.began, failed.ended, after, kinds, failed.model):
            return ""
        return "nothing that was done explains this"

    def _why_not_lost(self, failed: Failed, places: frozenset[str]) -> str:
        named = [each for each in self._nodes_lost if each.node in places and f"node {each.node} " in failed.message]
        if not any(_during(failed, each.at) for each in named):
            return "the node that it names was not lost then"
        late = min(failed.ended - each.at for each in named if each.at <= failed.ended + _SLACK_S)
        link = {failed.place: {FaultKind.LINK}}
        if late < _KNOWN_S or self._fault(failed.began, failed.ended, _SOON_S, link):
            return ""
        return f"told {late:.1f} s late"

    def _better_reason(self, failed: Failed) -> Loss | None:
        """Return the loss of a node that a gateway of the head must have heard of before it gave up a connection to that node."""
        named = [each for each in self._nodes_lost if f"node {each.node}," in failed.message]
        known = [each for each in named if failed.began <= each.at < failed.ended - _SLACK_S]
        if failed.place != HEAD or not known:
            return None
        loss = max(known, key=lambda each: each.at)
        hindered = self._fault(loss.at, failed.ended, _SLACK_S, {HEAD: {FaultKind.SUPERVISOR}})
        return None if hindered else loss

    def _fault(
        self, began: float, ended: float, after: float, kinds: Mapping[str, set[FaultKind]], model: str = ""
    ) -> Fault | None:
        """Return a fault of one of these kinds for its place, not longer than ``after`` seconds before."""
        for each in self._faults:
            if each.kind is not FaultKind.OVERLOAD and each.kind not in kinds.get(each.place, ()):
                continue
            if model and each.model and each.model != model:
                continue
            if each.began <= ended + _SLACK_S and each.ended >= began - after:
                return each
        return None


def _is_node_loss(why: str) -> bool:
    return why.startswith(("node ", "the agent of node "))


def _during(failed: Failed, at: float) -> bool:
    return failed.began - _SLACK_S <= at <= failed.ended + _SLACK_S
