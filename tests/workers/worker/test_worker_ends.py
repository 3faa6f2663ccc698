"""Ends of a real worker, of its engine and of its supervisor: the reports, the requests that continue, and that no process is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from protocol.failures import Code
from protocol.messages.engines import EngineDied
from protocol.messages.peers import Ping, Pong, Shutdown
from protocol.messages.work import AttemptAbandoned, AttemptEnded
from tests.support.processes import alive, stop
from tests.support.waiting import wait_for
from tests.workers.direct_engine import spec_of
from tests.workers.worker_process import CHAT, ENDLESS, WorkerProcess, running_worker


def test_ends_that_are_sent_together_arrive_before_later_messages(spare: WorkerProcess) -> None:
    spare.load(spec_of("tiny-loop", ctx_size=100_000, slots=16))
    spare.subscribe()
    spare.run(1, "chat/completions", ENDLESS, stream=True)
    spare.begun(1)
    brief = range(2, 8)
    for number in brief:
        spare.run(number, "chat/completions", {**CHAT, "max_tokens": 2})
    for number in brief:
        assert spare.ended(number).done.output_tokens == 2
    os.kill(spare.ready.engine_pid, signal.SIGKILL)
    reported: list[object] = []
    spare.until(
        lambda: reported.extend(spare.messages) or spare.messages.clear() or EngineDied in map(type, reported),
        "the death is reported",
    )
    ends = [message.number for message in reported if isinstance(message, AttemptEnded)]
    assert sorted(ends) == list(brief)
    assert isinstance(reported[-1], EngineDied)


def test_the_engines_death_is_reported_and_another_engine_can_start(loop: WorkerProcess) -> None:
    for number in (1, 2):
        loop.run(number, "chat/completions", ENDLESS, stream=True)
    loop.begun(1)
    os.kill(loop.ready.engine_pid, signal.SIGKILL)
    sent = {}
    for number in (1, 2):
        failure = loop.ended(number).failure
        assert failure.code == Code.BACKEND_DIED
        expected = r"llama-server of \S+ was killed by SIGKILL, which lemonbus did not send"
        assert re.fullmatch(expected, failure.message)
        assert failure.tokens_sent or number == 2
        sent[number] = failure.tokens_sent
    died = loop.expect(EngineDied)
    assert died.failure.code == Code.BACKEND_DIED
    assert {each.number: each.tokens for each in died.unfinished} == sent
    before = loop.ready.engine_pid
    assert loop.load(spec_of("tiny-loop")).engine_pid != before
    loop.run(3, "chat/completions", {**CHAT, "max_tokens": 5})
    assert loop.ended(3).done.output_tokens == 5


def test_a_hung_engine_is_killed(tmp_path: Path) -> None:
    with running_worker(tmp_path, silence=0.5) as one:
        engine = one.load(spec_of("tiny-loop", ctx_size=100_000)).engine_pid
        one.subscribe()
        one.run(1, "chat/completions", ENDLESS, stream=True)
        one.begun(1)
        stop(engine)
        assert one.ended(1).failure.code == Code.HUNG
        assert one.expect(EngineDied).failure.code == Code.HUNG
        assert not alive(engine)


def test_an_engine_that_stops_is_not_reported_and_one_that_does_not_is_and_ends_with_the_worker(tmp_path: Path) -> None:
    grace = 0.2
    with running_worker(tmp_path, grace=grace) as one:
        one.load(spec_of("tiny-loop", ctx_size=100_000))
        one.subscribe()
        one.run(1, "chat/completions", ENDLESS, stream=True)
        one.begun(1)
        one.cancel(1)
        one.expect(AttemptEnded)
        one.run(2, "chat/completions", ENDLESS, stream=True)
        begun = time.monotonic()
        one.until(lambda: time.monotonic() > begun + 2 * grace, "twice the time has passed")
        assert not [messages for messages in one.messages if isinstance(messages, AttemptAbandoned)]
        engine = one.ready.engine_pid
        stop(engine)
        one.cancel(2)
        assert one.expect(AttemptAbandoned) == AttemptAbandoned(one.gateway, 2, 1)
        assert not [messages for messages in one.messages if isinstance(messages, AttemptEnded)], (
            "it may go on at any moment"
        )
        one.send(Shutdown(0.0))
        assert one.process.wait(5) == 0
        assert not alive(engine)


def expect_end(worker: WorkerProcess, code: Code) -> None:
    """Check that the end of request 1 is reported with what its client has got."""
    failure = worker.ended(1).failure
    assert failure.code == code
    assert failure.tokens_sent
    end = worker.expect(AttemptEnded)
    assert (end.number, end.code, end.tokens) == (1, code, failure.tokens_sent)
    assert end.prompt_tokens
    assert end.serial == 1, "it is counted"


def test_sigterm_ends_it_at_once_and_what_was_cut_off_is_reported(loop: WorkerProcess) -> None:
    loop.run(1, "chat/completions", ENDLESS, stream=True)
    loop.begun(1)
    loop.process.terminate()
    expect_end(loop, Code.UNLOADED)
    assert loop.process.wait(5) == 0
    assert not alive(loop.ready.engine_pid)


def test_the_end_of_an_engine_whose_worker_leaves_is_reported_by_what_was_cut_off(loop: WorkerProcess) -> None:
    loop.run(1, "chat/completions", ENDLESS, stream=True)
    loop.begun(1)
    loop.send(Shutdown(600.0))
    loop.send(Ping(1))
    loop.expect(Pong)
    os.kill(loop.ready.engine_pid, signal.SIGKILL)
    expect_end(loop, Code.BACKEND_DIED)
    assert loop.process.wait(5) == 0


def test_a_killed_worker_takes_its_engine_along(loop: WorkerProcess) -> None:
    loop.process.kill()
    wait_for(lambda: not alive(loop.ready.engine_pid), "the engine is gone")


def test_a_dead_supervisor_lets_running_requests_end(tmp_path: Path) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as controller,
        running_worker(tmp_path, controller.pid) as one,
    ):
        one.load(spec_of("tiny-loop"))
        one.subscribe()
        one.run(1, "chat/completions", {**CHAT, "max_tokens": 600}, stream=True)
        one.begun(1)
        controller.kill()
        assert one.ended(1).done.output_tokens == 600
        assert one.process.wait(5) == 0


def test_a_dead_supervisor_and_the_end_of_the_grace(tmp_path: Path) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as controller,
        running_worker(tmp_path, controller.pid, grace=0.3) as one,
    ):
        one.load(spec_of("tiny-loop", ctx_size=100_000))
        one.subscribe()
        one.run(1, "chat/completions", ENDLESS, stream=True)
        one.begun(1)
        controller.kill()
        assert one.ended(1).failure.code == Code.SUPERVISOR_LOST
        assert one.process.wait(5) == 0


def test_a_worker_that_the_supervisor_does_not_welcome_ends(tmp_path: Path) -> None:
    with running_worker(tmp_path, welcome=False, peer_silence=0.3) as one:
        assert one.process.wait(10) == 1


def test_a_welcomed_worker_stays(tmp_path: Path) -> None:
    with running_worker(tmp_path, peer_silence=1.0) as one:
        started = time.monotonic()
        one.until(lambda: time.monotonic() > started + 1.2, "more than the limit has passed")
        one.send(Ping(1))
        assert one.expect(Pong).number == 1
