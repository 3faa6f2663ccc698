"""Published clients, monitors and log readers of a server whose supervisor is killed: they notice nothing."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import simple_websocket

from tests.faults.conftest import LOOP
from tests.faults.supervisors.recoveries import recovered_since, recoveries
from tests.support import processes
from tests.support.clients.openai_client import openai_client
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT = "extra.tiny-chat"
HELLO = [{"role": "user", "content": "hello"}]


def streamed(server: LemonbusServer, _: int) -> str:
    """Return why a stream of the OpenAI package ended."""
    chunks = list(openai_client(server).chat.completions.create(model=LOOP, messages=HELLO, max_tokens=60, stream=True))  # type: ignore[call-overload]
    return str(next(chunk.choices[0].finish_reason for chunk in reversed(chunks) if chunk.choices))


def asked(server: LemonbusServer, model: str, _: int) -> int:
    """Return the tokens of an answer to a client that neither retries nor knows lemonbus."""
    answer = server.client.chat(model, patience=60.0, max_tokens=4)
    assert answer.status == 200, answer
    return int(answer.json()["usage"]["completion_tokens"])


def test_published_and_plain_clients_notice_nothing(loop_server: LemonbusServer) -> None:
    server = loop_server
    assert server.client.post("/v1/load", {"model_name": CHAT}).status == 200
    engines = [server.engine_pid(model) for model in (LOOP, CHAT)]
    with ThreadPoolExecutor(20) as pool:
        with processes.stopped(engines[0]):  # otherwise the first streams might end before the last ones begin
            streams = [pool.submit(streamed, server, number) for number in range(8)]
            wait_for(lambda: server.state()["granted"] == server.state()["queued"] == 4, "as many wait as run", 30.0)
        wholes = []
        for _ in range(3):
            wholes += [pool.submit(asked, server, CHAT, number) for number in range(2)]
            before = len(recoveries(server))
            server.kill_supervisor()
            wholes += [pool.submit(asked, server, LOOP, number) for number in range(2)]
            recovered_since(server, before)
        assert {each.result(120) for each in streams} == {"length"}
        assert {each.result(120) for each in wholes} == {4}
    assert [server.engine_pid(model) for model in (LOOP, CHAT)] == engines
    server.assert_idle()


def test_a_log_reader_and_a_monitor_go_on(loop_server: LemonbusServer) -> None:
    server = loop_server
    reader = simple_websocket.Client(f"ws://127.0.0.1:{server.port}/logs/stream")
    try:
        reader.send(json.dumps({"type": "logs.subscribe", "after_seq": None}))
        seen: list[str] = []

        def count(text: str) -> int:
            message = json.loads(reader.receive(timeout=0.1) or "{}")
            entries = message.get("entries", [message["entry"]] if "entry" in message else [])
            seen.extend(json.dumps(entry) for entry in entries)
            return sum(text in line for line in seen)

        def ask(label: str) -> None:
            answer = server.client.start_chat(LOOP, headers={"X-Request-ID": label}, max_tokens=2).finish()
            assert answer.status == 200
            wait_for(partial(count, label), "the reader gets the line of the request")

        ask("asked-before-the-kill")
        takeovers, deaths = count("(Supervisor) recovered"), count("the last supervisor has ended")
        server.kill_supervisor()
        for path in ("/live", "/health", "/v1/health"):
            assert server.client.get(path, patience=5).status == 200
        wait_for(lambda: count("(Supervisor) recovered") > takeovers, "the new log reaches the reader of the old one")
        assert count("the last supervisor has ended") == deaths + 1, "what the start said is retained"
        ask("asked-after-the-kill")
        assert len(seen) == len(set(seen)), "no line comes twice"
    finally:
        with contextlib.suppress(simple_websocket.ConnectionClosed):
            reader.close()
