"""The soak's judge of errors on several machines: what explains an error, and what does not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tests.soak.causes import Causes
from tests.soak.history import EVERYWHERE, Failed, Fault, FaultKind

NOW: Final = 1_800_000_000.0
PLACES: Final = {"chat": frozenset({"gpu1", "gpu2"}), "tale": frozenset({"head"})}
LOST_TEXT: Final = "The worker of model chat is gone, because node gpu1 is not reachable; repeat the request"


def line(event: str, node: str = "gpu1", why: str = "node gpu1 is not reachable", **more: Any) -> dict[str, Any]:
    stamp = datetime.fromtimestamp(NOW, UTC).isoformat()
    return {"ts": stamp, "level": "error", "event": event, "node": node, "reason": why, **more}


def fault(kind: FaultKind, place: str = "gpu1", model: str = "", before: float = 4.0) -> Fault:
    """Return a fault that has begun so long before the error, and has ended a second later."""
    return Fault(kind, place, "a fault", model, NOW - before, NOW - before + 1.0)


def failed(code: str, model: str = "chat", place: str = "head", status: int = 200, text: str = LOST_TEXT) -> Failed:
    return Failed(place, model, status, code, text, NOW - 2.0, NOW + 0.1)


def problems(faults: list[Fault], lines: list[dict[str, Any]], *answers: Failed) -> list[str]:
    return list(Causes(faults, lines, PLACES).problems(answers))


NODE, WORKER, ENGINE = FaultKind.NODE, FaultKind.WORKER, FaultKind.ENGINE
LOST: Final = line("node lost")
GONE: Final = line("worker gone", why="SIGKILL", model="chat")


@pytest.mark.parametrize(
    ("faults", "lines", "answer"),
    [
        ([fault(NODE)], [LOST], failed("node_lost")),
        ([fault(WORKER, model="chat")], [GONE], failed("worker_gone")),
        (
            [fault(NODE)],
            [line("node lost", why="node gpu1 has not reported to this supervisor")],
            failed("node_lost", text="because node gpu1 was lost; repeat the request"),
        ),
        ([fault(ENGINE)], [], failed("backend_died")),
        ([fault(FaultKind.DRAIN, "gpu2")], [], failed("no_suitable_node", status=503)),
        ([fault(FaultKind.UNLOAD, EVERYWHERE, "chat")], [], failed("unloaded", status=503)),
        ([fault(FaultKind.SUPERVISOR, "head")], [], failed("starting", status=503)),
        ([fault(FaultKind.LINK, "edge1")], [], failed("supervisor_lost", place="edge1", status=503)),
        ([fault(NODE, before=40.0)], [], failed("backing_off", status=503)),
    ],
)
def test_what_was_done_explains_an_error(faults: list[Fault], lines: list[dict[str, Any]], answer: Failed) -> None:
    assert problems(faults, lines, answer) == []


@pytest.mark.parametrize(
    ("faults", "lines", "answer"),
    [
        ([fault(NODE)], [], failed("node_lost")),
        ([fault(NODE)], [LOST], failed("node_lost", text="because node gpu2 is not reachable")),
        ([fault(NODE)], [LOST], failed("node_lost", model="tale")),
        ([fault(NODE)], [LOST, line("worker gone", model="chat")], failed("worker_gone")),
        ([fault(NODE)], [line("node lost", why="node gpu1 has not reported")], failed("worker_gone")),
        ([fault(NODE)], [], failed("events_lost", model="tale")),
        ([fault(ENGINE, model="other")], [], failed("backend_died")),
        ([fault(FaultKind.SUPERVISOR, "head")], [], failed("events_lost")),
        ([fault(FaultKind.DRAIN)], [], failed("events_lost")),
        ([fault(FaultKind.LINK, "edge1")], [], failed("supervisor_lost", status=503)),
        ([fault(NODE, before=40.0)], [], failed("events_lost")),
    ],
)
def test_an_error_that_nothing_explains_is_found(
    faults: list[Fault], lines: list[dict[str, Any]], answer: Failed
) -> None:
    [found] = problems(faults, lines, answer)
    assert answer.code in found


def test_what_the_log_says_must_have_a_reason() -> None:
    assert len(problems([fault(NODE, "gpu2")], [LOST])) == 1
    assert len(problems([fault(ENGINE)], [GONE])) == 1
    assert len(problems([], [line("worker gone", node="gpu2", model="chat")])) == 1
    assert problems([fault(NODE)], [LOST, GONE, line("worker gone", model="chat")]) == []


def test_clients_of_the_head_must_be_told_that_the_node_is_lost_not_that_a_connection_broke() -> None:
    text = "the connection to node gpu1, where the model runs, is broken"
    answer = Failed("head", "chat", 200, "events_lost", text, NOW - 2.0, NOW + 4.0)
    [found] = problems([fault(NODE)], [LOST], answer)
    assert "not told" in found
    excused = [fault(NODE), fault(NODE, "gpu2")]
    assert problems(excused, [line("node lost", node="gpu2", why="node gpu2 is not reachable")], answer) == []
    assert problems([fault(NODE), fault(FaultKind.SUPERVISOR, "head", before=0.0)], [LOST], answer) == []


def test_a_machine_that_is_overloaded_explains_what_is_late() -> None:
    overload = Fault(FaultKind.OVERLOAD, EVERYWHERE, "the machine was overloaded", "", NOW - 4.0, NOW - 1.0)
    assert problems([overload], [LOST, GONE], failed("events_lost", model="tale")) == []
    overload.ended -= 30.0
    overload.began -= 30.0
    assert len(problems([overload], [LOST, GONE], failed("events_lost", model="tale"))) == 3


def test_clients_must_be_told_of_a_lost_node_soon() -> None:
    late = Failed("head", "chat", 200, "node_lost", LOST_TEXT, NOW - 2.0, NOW + 30.0)
    [found] = problems([fault(NODE)], [LOST], late)
    assert "30.0 s late" in found
