"""Each effect of the scheduler reaches the part that carries it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, get_args
from unittest.mock import Mock, call

import msgspec
import pytest
import structlog

from protocol.failures import Code, Failure
from protocol.messages.engines import CheckModel, SetRequestRules, StartEngine
from protocol.messages.peers import Shutdown
from protocol.messages.work import Cancel, GrantedAttempt, Refused, Run
from protocol.models.memory import EngineDevice
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from protocol.requests.request_rules import RequestRules
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.runtime.effect_executor import EffectExecutor
from supervisor.scheduler import effects
from supervisor.scheduler.effects import Effect

SPEC = ModelSpec("m", "o/m", "llamacpp", "cpu", "llm", "/m")
DEATH = Failure(Code.BACKEND_DIED, "SIGSEGV", model="m")
REFUSAL = Refused(4, 0, Failure(Code.CONFLICT, "no"))
GRANT = GrantedAttempt(4, 1, "w1", "m")
EFFECTS: list[tuple[Effect, Any]] = [
    (effects.SendMessage("g1", Shutdown(0.0, "end"), b"x"), call.bus.send("g1", Shutdown(0.0, "end"), b"x")),
    (effects.SendMessage("", REFUSAL), call.internal_calls.end(4, REFUSAL.failure)),
    (effects.NotifyGrant("g1", GRANT), call.grant_notices.add("g1", GRANT)),
    (effects.AnswerCall("g1", 4, ["m"]), call.answer("g1", 4, ["m"])),
    (effects.AnswerCall("", 4, ["m"]), call.internal_calls.end(4, ["m"])),
    (effects.SpawnWorker("w1", "gpu2"), call.workers.start("w1", "gpu2")),
    (effects.KillWorker("w1"), call.workers.kill("w1")),
    (effects.KillAfter("w1", 0.0), call.workers.kill("w1")),
    (effects.FetchModel("m"), call.fetch("m")),
    (effects.FetchFiles("m", SPEC, "gpu2"), call.nodes.fetch_files("m", SPEC, "gpu2")),
    (effects.RequestResources([{"GPU": 1.0}]), call.nodes.request_resources([{"GPU": 1.0}])),
    (effects.ForgetModel("m"), call.models.adopted.forget("m")),
    (effects.NoteDeath("m", DEATH), call.record.engine_died("m", DEATH)),
]


RULES = RequestRules(drop=["top_k"])
DEVICES = [EngineDevice("amd", "0000:03:00.0", free=5)]


class BarrierWithNothingToRead:
    """A barrier at which nothing is waited for; it notes the workers that would be."""

    def __init__(self, parts: Mock) -> None:
        self._parts = parts

    def wait(self, workers: list[str], callback: Callable[[], None]) -> None:
        if workers:
            self._parts.waited(workers)
        callback()


def executor(parts: Mock) -> EffectExecutor:
    def call_later(_seconds: float, callback: Callable[[], None]) -> None:
        callback()

    loop: Any = Mock(call_later=call_later)
    return EffectExecutor(
        loop=loop,
        bus=parts.bus,
        workers=parts.workers,
        models=parts.models,
        grant_notices=parts.grant_notices,
        internal_calls=parts.internal_calls,
        errors=parts.errors,
        answer=parts.answer,
        barrier=cast(WorkerBarrier, BarrierWithNothingToRead(parts)),
        record=parts.record,
        fetch=parts.fetch,
        with_devices=lambda use: use(DEVICES),
        nodes=parts.nodes,
    )


@pytest.mark.parametrize(("effect", "expected"), EFFECTS)
def test_an_effect_is_carried_out(effect: Effect, expected: Any) -> None:
    parts = Mock()
    executor(parts).execute([effect])
    assert parts.mock_calls == [expected]


@pytest.mark.parametrize(("peer", "answer"), [("g1", call.answer("g1", 4, [])), ("", call.internal_calls.end(4, []))])
def test_an_answer_waits_for_the_worker_that_must_have_read_something(peer: str, answer: Any) -> None:
    parts = Mock()
    executor(parts).execute([effects.AnswerCall(peer, 4, [], after="w1")])
    assert parts.mock_calls == [call.waited(["w1"]), answer]


def test_a_decision_is_logged() -> None:
    with structlog.testing.capture_logs() as lines:
        executor(Mock()).execute([effects.LogDecision("warning", "model stuck", {"model": "m"})])
    assert lines == [{"log_level": "warning", "event": "model stuck", "model": "m"}]


def test_every_kind_of_effect_is_in_this_table() -> None:
    assert {type(effect) for effect, _ in EFFECTS} | {effects.LogDecision} == set(get_args(Effect))


def test_a_worker_gets_the_rules_of_its_model_before_the_engine_starts() -> None:
    parts = Mock()
    parts.workers.node_of.return_value = HEAD
    parts.models.configuration.request_rules.return_value = RULES
    executor(parts).execute([effects.SendMessage("w1", StartEngine(SPEC))])
    assert parts.bus.mock_calls == [call.send("w1", SetRequestRules(RULES)), call.send("w1", StartEngine(SPEC), b"")]
    parts.models.configuration.request_rules.assert_called_once_with(SPEC)


def test_a_check_knows_the_devices_of_the_machine() -> None:
    parts = Mock()
    parts.workers.node_of.return_value = HEAD
    parts.workers.names.return_value = ["w1"]
    checks = [effects.SendMessage(worker, CheckModel(SPEC)) for worker in ("w1", "w2 has ended")]
    executor(parts).execute(checks)
    assert parts.bus.mock_calls == [call.send("w1", CheckModel(SPEC, DEVICES))]


RUN = Run("g1", 1, 1, "m", "chat/completions", "r1", spool="g1-1")
CANCEL = Cancel("g1", 1, 1, "the client left")


@pytest.mark.parametrize(
    ("node", "sent"),
    [
        (HEAD, call.send("w1", RUN, b"")),
        ("gpu2", call.send("w1", msgspec.structs.replace(RUN, spool=""), b"body of g1-1")),
    ],
)
def test_a_worker_on_another_node_gets_a_body_instead_of_its_file(node: str, sent: Any) -> None:
    parts = Mock()
    parts.workers.node_of.return_value = node
    made = executor(parts)
    parts.nodes.read_body = lambda file, use: use(b"body of " + file.encode())
    made.execute([effects.SendMessage("w1", RUN)])
    assert parts.bus.mock_calls == [sent]


def test_a_body_whose_file_is_gone_is_missed_by_the_worker() -> None:
    parts = Mock()
    parts.workers.node_of.return_value = "gpu2"
    made = executor(parts)
    parts.nodes.read_body = lambda _file, use: use(FileNotFoundError())
    made.execute([effects.SendMessage("w1", RUN)])
    assert parts.bus.mock_calls == [call.send("w1", RUN)]


def test_while_a_body_is_read_only_its_worker_waits_and_gets_its_messages_in_order() -> None:
    parts = Mock()
    parts.workers.node_of.return_value = "gpu2"
    made = executor(parts)
    reads: dict[str, Callable[[bytes | Exception], None]] = {}
    parts.nodes.read_body = reads.__setitem__
    second = msgspec.structs.replace(RUN, number=2, spool="g1-2")
    end = Shutdown(0.0, "end")
    run_1, run_2 = (msgspec.structs.replace(each, spool="") for each in (RUN, second))
    made.execute([effects.SendMessage("w1", each) for each in (RUN, CANCEL, second, end)])
    made.execute([effects.SendMessage("w2", CANCEL)])
    assert parts.bus.mock_calls == [call.send("w2", CANCEL, b"")]
    reads.pop("g1-1")(b"1")
    assert parts.bus.mock_calls[1:] == [call.send("w1", run_1, b"1"), call.send("w1", CANCEL, b"")]
    made.execute([effects.SendMessage("w1", CANCEL)])
    reads.pop("g1-2")(b"2")
    assert parts.bus.mock_calls[3:] == [
        call.send("w1", run_2, b"2"),
        call.send("w1", end, b""),
        call.send("w1", CANCEL, b""),
    ]
    made.execute([effects.SendMessage("w1", end)])
    assert parts.bus.mock_calls[6:] == [call.send("w1", end, b"")]


@pytest.mark.parametrize("message", [CheckModel(SPEC), StartEngine(SPEC, age=1.0)])
def test_a_worker_elsewhere_gets_the_paths_of_its_node(message: CheckModel | StartEngine) -> None:
    parts = Mock()
    parts.workers.names.return_value = ["w1", "w2"]
    parts.models.configuration.request_rules.return_value = RULES
    made = executor(parts)
    parts.workers.node_of = {"w1": HEAD, "w2": "n2"}.get
    parts.nodes.paths_at = lambda node, spec: {spec.path: f"/{node}/m"}
    parts.nodes.devices_at = lambda _node, use: use([])
    for worker in ("w1", "w2"):
        made.execute([effects.SendMessage(worker, message)])
    sent = [each.args for each in parts.bus.send.mock_calls if isinstance(each.args[1], CheckModel | StartEngine)]
    assert [(worker, dict(message.paths), message.spec) for worker, message, *_ in sent] == [
        ("w1", {}, SPEC),
        ("w2", {"/m": "/n2/m"}, SPEC),
    ]


def test_a_check_on_another_node_knows_the_devices_there() -> None:
    parts = Mock()
    parts.workers.names.return_value = ["w2"]
    made = executor(parts)
    parts.workers.node_of.return_value = "n2"
    parts.nodes.paths_at.return_value = {}
    parts.nodes.devices_at = lambda node, use: use([EngineDevice("nvidia", node)])
    made.execute([effects.SendMessage("w2", CheckModel(SPEC))])
    assert parts.bus.mock_calls == [call.send("w2", CheckModel(SPEC, [EngineDevice("nvidia", "n2")]))]
