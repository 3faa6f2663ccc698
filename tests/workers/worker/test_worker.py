"""A real worker process with a real engine, driven over real ZeroMQ: loads, requests, cancels."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from protocol.failures import Code
from protocol.messages.engines import CheckModel, EngineReady, LoadFailed, ModelChecked, StartEngine
from protocol.messages.events import EventKind
from protocol.messages.peers import Ping, Pong
from protocol.messages.work import AttemptEnded, Run
from protocol.models.memory import HOST
from protocol.models.recipes import ModelSpec
from protocol.wire import endpoints
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.processes import alive, engine_key
from tests.support.waiting import wait_for
from tests.workers.direct_engine import spec_of
from tests.workers.worker_process import CHAT, ENDLESS, ROOT, WorkerProcess, running_worker


@pytest.fixture(scope="module")
def worker_with_chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    with running_worker(tmp_path_factory.mktemp("chat")) as one:
        one.load(spec_of("tiny-chat"))
        one.subscribe()
        yield one


@pytest.fixture(scope="module")
def worker_with_loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    with running_worker(tmp_path_factory.mktemp("loop")) as one:
        one.load(spec_of("tiny-loop", ctx_size=100_000))
        one.subscribe()
        yield one


@pytest.fixture
def shared_chat(worker_with_chat: WorkerProcess) -> WorkerProcess:
    """A worker with a model, for several tests. Each has request numbers of its own."""
    worker_with_chat.messages.clear()
    return worker_with_chat


@pytest.fixture
def shared_loop(worker_with_loop: WorkerProcess) -> WorkerProcess:
    """The same with a model whose answers have no end. Each test cancels its requests."""
    worker_with_loop.messages.clear()
    return worker_with_loop


def idle_slots(ready: EngineReady) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", int(ready.backend_url.rpartition(":")[2]), timeout=5)
    connection.request("GET", "/slots", headers={"Authorization": f"Bearer {engine_key(ready.engine_pid)}"})
    slots = json.loads(connection.getresponse().read())
    connection.close()
    return not any(slot["is_processing"] for slot in slots)


def report_of(worker: WorkerProcess, number: int) -> AttemptEnded:
    """Return the report of a request's end to the supervisor; the report of an earlier request may still come first."""
    while (report := worker.expect(AttemptEnded)).number != number:
        pass
    return report


def test_load_run_and_leave(chat: WorkerProcess) -> None:
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{chat.process.pid}/smaps_rollup").read_text().splitlines()[1:]
    )
    assert int(fields["Pss"].split()[0]) < 25_000, "kB: an idle worker is small"
    chat.run(1, "chat/completions", CHAT, stream=True)
    streamed = chat.ended(1)
    assert streamed.text == CHAT_TEXT
    assert b"[DONE]" not in streamed.data
    assert b'"usage"' not in streamed.data
    assert b"prompt_progress" not in streamed.data
    assert streamed.data.count(b'"timings"') == 1
    assert streamed.data.count(b'"model":"asked-for"') == streamed.data.count(b"data: ")
    outcome = streamed.done
    assert outcome.output_tokens > 10
    assert outcome.prompt_tokens > 10
    assert len(outcome.each_token_s) == outcome.output_tokens
    idle = chat.expect(AttemptEnded)
    assert (idle.number, idle.code, idle.outcome) == (1, "", outcome)

    chat.run(2, "chat/completions", {**CHAT, "stream_options": {"include_usage": True}}, stream=True)
    assert chat.ended(2).data.count(b'"usage":{') == 1

    chat.run(3, "chat/completions", CHAT)
    whole = chat.ended(3)
    assert [event.kind for event in whole.events] == [EventKind.DELTA, EventKind.DONE]
    answer = json.loads(whole.data)
    assert answer["choices"][0]["message"]["content"] == CHAT_TEXT
    assert answer["model"] == "asked-for"
    chat.run(4, "completions", {"prompt": ["a", "b"], "max_tokens": 3})
    assert [choice["index"] for choice in json.loads(chat.ended(4).data)["choices"]] == [0, 1]
    chat.send(Ping(7))
    assert chat.expect(Pong).number == 7
    engine = chat.ready.engine_pid
    assert chat.leave() == 0
    assert not alive(engine)


def test_failures_of_the_engine_reach_the_client(shared_chat: WorkerProcess) -> None:
    chat = shared_chat
    chat.run(11, "chat/completions", {"messages": [{"role": "user", "content": "a" * 20_000}]})
    failure = chat.ended(11).failure
    assert (failure.code, failure.http_status) == (Code.CONTEXT_EXCEEDED, 400)
    assert "4096" in failure.message
    assert report_of(chat, 11).code == Code.CONTEXT_EXCEEDED
    chat.run(12, "chat/completions", {"messages": 7})
    assert chat.ended(12).failure.http_status == 400
    chat.run(13, "embeddings", {"input": "a"})
    assert chat.ended(13).failure.code == Code.UNSUPPORTED


def test_slots(shared_chat: WorkerProcess) -> None:
    chat = shared_chat
    chat.run(21, "slots", {}, query="GET")
    assert [slot["id"] for slot in json.loads(chat.ended(21).data)] == [0, 1, 2, 3]
    chat.run(22, "slots", {"filename": "kept"}, query="save/0")
    assert json.loads(chat.ended(22).data)["filename"] == "kept"
    chat.run(23, "slots", {"filename": "kept"}, query="restore/1")
    assert json.loads(chat.ended(23).data)["id_slot"] == 1
    chat.run(24, "slots", {"filename": "other"}, query="restore/1")
    assert chat.ended(24).failure.http_status == 400
    chat.run(25, "slots", {}, query="erase/4")
    assert chat.ended(25).failure.code == Code.NOT_FOUND
    chat.run(26, "slots", {}, query="erase/0")
    assert json.loads(chat.ended(26).data)["id_slot"] == 0


@pytest.mark.parametrize(
    ("model", "kind", "endpoint", "body"),
    [
        ("tiny-embed", "embedding", "embeddings", {"input": ["a", "b"]}),
        ("tiny-rerank", "reranking", "rerank", {"query": "a", "documents": ["b", "c"]}),
    ],
)
def test_embeddings_and_rankings(spare: WorkerProcess, model: str, kind: str, endpoint: str, body: Any) -> None:
    spare.load(spec_of(model, kind))
    spare.subscribe()
    spare.run(1, endpoint, body)
    received = spare.ended(1)
    answer = json.loads(received.data)
    assert len(answer["data" if endpoint == "embeddings" else "results"]) == 2
    assert answer["model"] == "asked-for"
    assert received.done.prompt_tokens > 0
    spare.run(2, endpoint, {"input": "a " * 9000, "query": "a " * 9000, "documents": ["b"]})
    assert spare.ended(2).failure.http_status == 400


@pytest.mark.parametrize(("number", "stream"), [(11, True), (12, False)])
def test_a_cancelled_request_is_idle_when_its_slot_is(shared_loop: WorkerProcess, number: int, stream: bool) -> None:
    loop = shared_loop
    loop.run(number, "chat/completions", ENDLESS, stream=stream)
    if stream:
        loop.begun(number)
    else:
        wait_for(lambda: not idle_slots(loop.ready), "the engine works")
    loop.cancel(number)
    assert report_of(loop, number).code == "cancelled"
    assert idle_slots(loop.ready)
    assert number not in loop.received or loop.received[number].end is None


def test_cancelling_one_request_leaves_another_alone(shared_loop: WorkerProcess) -> None:
    loop = shared_loop
    loop.run(21, "chat/completions", ENDLESS, stream=True)
    loop.run(22, "chat/completions", {**CHAT, "max_tokens": 600}, stream=True)
    loop.begun(21)
    loop.cancel(21)
    assert report_of(loop, 21).code == "cancelled"
    assert loop.ended(22).done.output_tokens == 600


def test_a_gateway_that_leaves_cancels(shared_loop: WorkerProcess) -> None:
    loop = shared_loop
    loop.run(31, "chat/completions", ENDLESS, stream=True)
    loop.begun(31)
    assert loop.sub is not None
    loop.sub.close(0)
    loop.sub = None
    assert report_of(loop, 31).code == "gateway_gone"
    assert idle_slots(loop.ready)
    loop.subscribe()


def test_nothing_is_published_before_the_subscription(tmp_path: Path) -> None:
    with running_worker(tmp_path, subscribe_timeout=60) as one:
        one.load(spec_of("tiny-chat"))
        one.run(1, "chat/completions", CHAT, stream=True)
        one.receive(0.3)
        one.subscribe()
        assert one.ended(1).text == CHAT_TEXT


def test_a_request_without_a_subscriber_is_returned(tmp_path: Path) -> None:
    with running_worker(tmp_path, subscribe_timeout=0.2) as one:
        one.load(spec_of("tiny-chat"))
        one.run(1, "chat/completions", CHAT)
        assert one.expect(AttemptEnded).code == Code.RETURNED


def test_a_ready_engine_tells_how_far_its_memory_is_from_the_estimate(tmp_path: Path) -> None:
    with running_worker(tmp_path) as one:
        ready = one.load(spec_of("tiny-chat"))
        assert ready.memory > 10 << 20
        assert ready.memory_difference is not None
        assert abs(ready.memory_difference) < 10 << 20


def test_what_a_check_finds_without_an_engine(spare: WorkerProcess, tmp_path: Path) -> None:
    good = spec_of("tiny-chat")
    spare.send(CheckModel(good))
    report = spare.expect(ModelChecked)
    assert report.estimate.need()[HOST] > 0
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(Path(good.path).read_bytes()[:-1000])
    text = tmp_path / "text.gguf"
    text.write_bytes(b"no model at all")
    for path, reason in ((cut, "truncated"), (text, "not a GGUF"), (tmp_path / "gone.gguf", "missing")):
        spare.send(CheckModel(ModelSpec("x", "x", "llamacpp", "cpu", "llm", str(path))))
        failed = spare.expect(LoadFailed)
        assert not failed.started
        assert reason in failed.failure.message
        assert str(tmp_path) not in failed.failure.message
    for args, named in (("--frobnicate 3", "--frobnicate"), ("-c 5", "-c"), ("-np 0", "-np")):
        spare.send(CheckModel(spec_of("tiny-chat", llamacpp_args=args)))
        failed = spare.expect(LoadFailed)
        assert failed.failure.code == Code.INVALID_REQUEST
        assert named in failed.failure.message


def test_a_load_that_only_starting_can_refuse(spare: WorkerProcess) -> None:
    spare.send(StartEngine(spec_of("tiny-chat", llamacpp_args="--lora nowhere.gguf")))
    failed = spare.expect(LoadFailed, 20)
    assert failed.started
    assert failed.failure.code == Code.LOAD_FAILED
    assert "exited with code 1" in failed.failure.message
    assert "nowhere.gguf" in failed.failure.detail
    spare.load(spec_of("tiny-chat"))


def test_a_llama_server_of_the_users_own(tmp_path: Path) -> None:
    """It inherits no PYTHONPATH, has the slots of its arguments, and dies with its worker although it has no code for that."""
    program = tmp_path / "my-llama-server"
    program.write_text(
        f'#!/bin/sh\n[ -z "$PYTHONPATH" ] || exit 9\nPYTHONPATH={ROOT} exec {sys.executable} -m workers.engine_servers.llama_server "$@"\n'
    )
    program.chmod(0o755)
    with running_worker(tmp_path, llama_server=str(program)) as one:
        spec = spec_of("tiny-chat", llamacpp_args="-np 2 -kvu", ctx_size=512)
        ready = one.load(structs.replace(spec, backend="system"))
        assert ready.slots == 2
        one.subscribe()
        one.run(1, "chat/completions", CHAT)
        assert CHAT_TEXT in one.ended(1).data.decode()
        one.process.kill()
        wait_for(lambda: not alive(ready.engine_pid), "the engine is gone")


def test_two_hundred_requests_outlive_the_engines_connections(shared_chat: WorkerProcess) -> None:
    """llama-server closes a kept connection after about a hundred."""
    for number in range(1001, 1201):
        shared_chat.run(number, "completions", {"prompt": "a", "max_tokens": 1})
        assert shared_chat.ended(number).done.output_tokens == 1


def test_a_body_in_the_spool(shared_chat: WorkerProcess) -> None:
    chat = shared_chat
    spool = endpoints.spool(chat.runtime.path) / "body"
    spool.write_bytes(json.dumps(CHAT).encode())
    chat.send(Run(chat.gateway, 31, 1, "asked-for", "chat/completions", "req", spool=spool.name))
    assert CHAT_TEXT in chat.ended(31).data.decode()
    assert spool.exists()
    chat.send(Run(chat.gateway, 32, 1, "asked-for", "chat/completions", "req", spool="gone"))
    assert chat.ended(32).failure.code == Code.INTERNAL
