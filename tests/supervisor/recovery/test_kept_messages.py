"""Messages that wait until a supervisor has taken over: their order, and their ages."""

from __future__ import annotations

from protocol.messages.work import AttemptEnded, AttemptsEnded, Cancel, ReserveRequest, SubmitRequest
from supervisor.recovery.kept_messages import KeptMessages


def submit(number: int, age: float | None) -> SubmitRequest:
    return SubmitRequest(number, 1, "m", "chat/completions", f"r.{number}", age=age)


def test_requests_are_taken_by_the_time_of_their_arrival_at_a_gateway() -> None:
    kept = KeptMessages()
    for at, peer, message in [
        (1.0, "g1", Cancel("g1", 9, 1, "")),
        (1.0, "g1", submit(3, None)),
        (1.0, "g1", submit(2, 4.0)),
        (2.0, "g2", submit(1, 5.5)),
        (2.5, "g2", ReserveRequest(4, "m", "chat/completions")),
        (3.0, "w1", AttemptsEnded([AttemptEnded("g1", 5, 1, age=0.25)])),
    ]:
        assert kept.keep(peer, message, b"", at)
    taken = [each.message for each in kept.take(frozenset({"g1", "g2"}), now=3.5)]
    assert taken == [
        AttemptsEnded([AttemptEnded("g1", 5, 1, age=0.75)]),
        ReserveRequest(4, "m", "chat/completions"),
        submit(1, 7.0),
        submit(2, 6.5),
        submit(3, None),
        Cancel("g1", 9, 1, ""),
    ]
    assert len(kept) == kept.size == 0
