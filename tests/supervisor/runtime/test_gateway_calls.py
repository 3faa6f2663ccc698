"""Answers of calls that have waited: reports, failures, and none for a gateway that has ended meanwhile."""

from __future__ import annotations

import errno
import os
from typing import Any
from unittest.mock import Mock, call

import pytest

from protocol.failures import Code, Failure
from protocol.messages.calls import CallResult, Progress
from protocol.messages.peers import Peer
from protocol.messages.work import Refused
from protocol.wire import envelope
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.runtime.gateway_calls import GatewayCalls

FAILURE = Failure(Code.CONFLICT, "no")


class Answers:
    def __init__(self) -> None:
        self.bus = Mock()
        self.peers = PeerRegistry(10.0)
        self.peers.add(Peer("gateway", "g1", os.getpid()), 0.0)
        self.written: list[Any] = []
        self.calls = GatewayCalls(self.bus, self.peers, Mock(when_written=self.written.append))


@pytest.fixture
def answers() -> Answers:
    return Answers()


def test_a_report_answers_and_a_failure_refuses(answers: Answers) -> None:
    answers.calls.reply("g1", 1, ["m"])
    answers.calls.reply("g1", 2, FAILURE)
    result = call.send("g1", CallResult(1), envelope.pack_payload(["m"]))
    assert answers.bus.mock_calls == [result, call.send("g1", Refused(2, 0, FAILURE))]


def test_a_report_waits_until_it_is_written_and_a_failure_does_not(answers: Answers) -> None:
    answers.calls.reply("g1", 1, FAILURE, when_written=True)
    assert answers.bus.mock_calls == [call.send("g1", Refused(1, 0, FAILURE))]
    answers.bus.reset_mock()
    answers.calls.reply("g1", 2, [], when_written=True)
    assert answers.bus.mock_calls == []
    answers.written[0](None)
    assert answers.bus.mock_calls == [call.send("g1", CallResult(2), envelope.pack_payload([]))]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_report_whose_change_is_not_written_becomes_a_failure(answers: Answers, error: int) -> None:
    answers.calls.answer_when_written("g1", 1, [], "; it was lost")
    problem = OSError(error, os.strerror(error))
    answers.written[0](problem)
    code = Code.INSUFFICIENT_STORAGE if error == errno.ENOSPC else Code.INTERNAL
    reason = f"the change could not be written: {problem.strerror}; it was lost"
    assert answers.bus.mock_calls == [call.send("g1", Refused(1, 0, Failure(code, reason, detail=str(problem))))]


def test_a_gateway_that_has_ended_is_not_answered(answers: Answers) -> None:
    answers.calls.reply("g1", 1, [], when_written=True)
    answers.peers.remove("g1")
    answers.written[0](None)
    answers.calls.reply("g1", 2, [])
    answers.calls.reply("g1", 3, FAILURE)
    answers.calls.tell("g1", Progress(4, "m", "f", 1, 1, 1, 2))
    assert answers.bus.mock_calls == []
