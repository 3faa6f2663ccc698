"""Limits of keys at a real server with two gateway processes: they are exact, and never refuse a client that sends one request after the other."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from protocol.requests.text_limits import BYTES_PER_TOKEN
from supervisor.runtime.decisions import RECONCILE_INTERVAL_S
from supervisor.scheduler.queue.grants import ANNOUNCED_AFTER_S
from tests.conftest import KEY
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer
from tests.support.waiting import stays, wait_for

MODEL = "extra.tiny-chat"
CHAT = "/v1/chat/completions"
LEAVERS = ("leaves-early", "loses-prompt", "leaves-at-once")
LEAVERS_LIMIT = 3000
FLOWS = [f"flow{number}" for number in range(4)]


def body(tokens: int = 1, *, stream: bool = False) -> dict[str, object]:
    messages = [{"role": "user", "content": "hi"}]
    return {"model": MODEL, "messages": messages, "max_tokens": tokens, "stream": stream, "ignore_eos": True}


def key(name: str, **limits: int) -> ApiKey:
    return ApiKey(name=name, sha256=digest(name), scopes=[Scope.INFERENCE], **limits)


@pytest.fixture(scope="module")
def server(keyed_server: LemonbusServer) -> LemonbusServer:
    server = keyed_server
    keys = [
        *(key(name, requests_per_minute=3 + number) for number, name in enumerate(FLOWS)),
        key("tokens", tokens_per_minute=200),
        key("leaves", tokens_per_minute=200),
        *(key(name, tokens_per_minute=LEAVERS_LIMIT) for name in LEAVERS),
        *(key(f"loses-{process}", tokens_per_minute=200) for process in ("engine", "worker")),
        key("parallel", tokens_per_minute=200),
        key("one", concurrent=1),
        key("two", concurrent=2),
        key("background", requests_per_minute=2),
        key("lists", requests_per_minute=2),
        key("evaluates", requests_per_minute=2),
    ]
    write_keys(Path(server.settings.state_dir) / KEYS_FILE, keys)
    assert ask(server, KEY).status == 200, "the model is loaded"
    return server


def ask(server: LemonbusServer, name: str, tokens: int = 1) -> HttpExchange:
    return RawHttpClient(server.port, {"Authorization": f"Bearer {name}"}).post(CHAT, body(tokens))


def test_requests_a_minute_are_exact_over_all_gateways(server: LemonbusServer) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        names = FLOWS * 12
        exchanges = list(pool.map(lambda name: ask(server, name), names))
    share = (time.monotonic() - began) / 60
    accepted = Counter(name for name, each in zip(names, exchanges, strict=True) if each.status == 200)
    for number, name in enumerate(FLOWS):
        limit = 3 + number
        assert limit <= accepted[name] <= limit * (1 + share), name
    refused = next(each for each in exchanges if each.status == 429)
    assert 0 < int(refused.headers["retry-after"]) <= 20
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert ask(server, KEY).headers.get("x-ratelimit-limit-requests") is None


def test_tokens_are_counted_as_used_and_refuse_the_next_request(server: LemonbusServer) -> None:
    began = time.monotonic()
    used = 0
    while (answer := ask(server, "tokens", 20)).status == 200:
        limit = 200 * (1 + (time.monotonic() - began) / 60)
        assert used < limit, "the limit was reached before this request"
        assert int(answer.headers["x-ratelimit-remaining-tokens"]) >= 200 - used
        used += answer.json()["usage"]["total_tokens"]
    assert answer.status == 429
    assert used >= 200 - 1
    assert answer.headers["x-ratelimit-remaining-tokens"] == "0"


def test_simultaneous_requests_together_stay_within_the_tokens(server: LemonbusServer) -> None:
    """The tokens that each request may generate are reserved until it has ended."""
    client = RawHttpClient(server.port, {"Authorization": "Bearer parallel"})
    streams = []
    with processes.stopped(server.engine_pid(MODEL)):  # none of them ends meanwhile
        for count in (1, 2):
            streams.append(client.start("POST", CHAT, body(150, stream=True)))
            wait_for(lambda count=count: server.state()["granted"] == count, "it was admitted")
        refused = [client.post(CHAT, body(tokens)) for tokens in (150, 1)]
        assert [each.status for each in refused] == [429, 429]
        assert "running requests" in refused[0].json()["message"]
        assert refused[0].headers["retry-after"] == "1"
    for stream in streams:
        stream.finish()
        assert stream.done
    server.assert_idle()


def test_a_client_with_one_request_at_a_time_is_never_refused(server: LemonbusServer) -> None:
    client = RawHttpClient(server.port, {"Authorization": "Bearer one"})
    assert [client.post(CHAT, body()).status for _ in range(50)] == [200] * 50


def test_no_more_requests_at_once_than_allowed(server: LemonbusServer) -> None:
    client = RawHttpClient(server.port, {"Authorization": "Bearer two"})
    with processes.stopped(server.engine_pid(MODEL)):  # none of them ends meanwhile
        streams = [client.start("POST", CHAT, body(4000, stream=True)) for _ in range(2)]
        wait_for(lambda: server.state()["granted"] == 2, "both run")
        refused = ask(server, "two")
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert "2 requests at once" in refused.json()["message"]
        for stream in streams:
            stream.hang_up()
    server.assert_idle()
    assert ask(server, "two").status == 200


def test_a_long_list_counts_once(server: LemonbusServer) -> None:
    client = RawHttpClient(server.port, {"Authorization": "Bearer lists"})
    asked = {"model": MODEL, "prompt": ["hi"] * 100, "max_tokens": 1}
    answers = [client.post("/v1/completions", asked) for _ in range(3)]
    assert [each.status for each in answers] == [200, 200, 429]
    assert answers[1].headers["x-ratelimit-remaining-requests"] == "0"


def test_a_response_in_the_background_counts_once_and_is_refused_at_once(server: LemonbusServer) -> None:
    client = RawHttpClient(server.port, {"Authorization": "Bearer background"})
    asked = {"model": MODEL, "input": "hi", "max_output_tokens": 1, "background": True}
    answers = [client.post("/v1/responses", asked) for _ in range(3)]
    assert [each.status for each in answers] == [200, 200, 429]
    assert [each.headers["x-ratelimit-remaining-requests"] for each in answers] == ["1", "0", "0"]
    for each in answers[:2]:
        stored = f"/v1/responses/{each.json()['id']}"
        wait_for(lambda stored=stored: client.get(stored).json()["status"] != "in_progress", "it ended")
        assert client.get(stored).json()["status"] in ("completed", "incomplete")


def test_tokens_of_an_answer_that_a_client_left_count_too(server: LemonbusServer) -> None:
    client = RawHttpClient(server.port, {"Authorization": "Bearer leaves"})
    stream = client.start("POST", CHAT, body(4000, stream=True))
    stream.until(lambda it: len(it.events) > 230)
    stream.hang_up()
    server.assert_idle()
    refused = client.post(CHAT, body())
    assert (refused.status, refused.headers["x-ratelimit-remaining-tokens"]) == (429, "0")


LONG_PROMPT = {"messages": [{"role": "user", "content": "hello " * 250}]}


def left_of(server: LemonbusServer, name: str, began: float) -> float:
    """The tokens that a key of ``LEAVERS`` has left, without those that it regained since it ``began``."""
    server.assert_idle()
    answer = ask(server, name)
    return int(answer.headers["x-ratelimit-remaining-tokens"]) - (time.monotonic() - began) * LEAVERS_LIMIT / 60


@pytest.mark.parametrize("name", ["leaves-early", "loses-prompt"])
def test_the_prompt_of_an_answer_that_a_client_left_or_lost_counts_too(server: LemonbusServer, name: str) -> None:
    whole = RawHttpClient(server.port, {"Authorization": f"Bearer {KEY}"}).post(CHAT, body() | LONG_PROMPT)
    began = time.monotonic()
    client = RawHttpClient(server.port, {"Authorization": f"Bearer {name}"})
    stream = client.start("POST", CHAT, body(4000, stream=True) | LONG_PROMPT)
    stream.until(lambda it: len(it.events) > 2)
    if name == "leaves-early":
        stream.hang_up()
    else:
        processes.kill(server.engine_pid(MODEL))
        stream.finish(10)
    assert left_of(server, name, began) <= LEAVERS_LIMIT - whole.json()["usage"]["prompt_tokens"]


def test_a_prompt_that_the_engine_has_not_reported_yet_counts_by_its_bytes(server: LemonbusServer) -> None:
    began = time.monotonic()
    client = RawHttpClient(server.port, {"Authorization": "Bearer leaves-at-once", "X-Request-ID": "leaves-at-once"})
    with processes.stopped(server.engine_pid(MODEL)):
        stream = client.start("POST", CHAT, body(4000, stream=True) | LONG_PROMPT)
        wait_for(lambda: server.state()["granted"] == 1, "the engine has got it")
        stream.hang_up()
        wait_for(lambda: "leaves-at-once" in stopped(server), "the worker knows that its client is gone")
    left = left_of(server, "leaves-at-once", began)
    assert left <= LEAVERS_LIMIT - len("hello " * 250) / BYTES_PER_TOKEN


def stopped(server: LemonbusServer) -> set[str]:
    """The ids of the requests that their clients left."""
    return {line["request_id"] for line in server.lines if line["event"] == "request stopped"}


def keys_that_wait(server: LemonbusServer) -> set[str]:
    (model,) = [each for each in server.state()["models"] if each["model_name"] == MODEL]
    return {share["key"] for share in model["queue"]}


def test_a_key_that_waits_is_told_its_position_and_is_not_behind_all_of_another_key(server: LemonbusServer) -> None:
    greedy = RawHttpClient(server.port, {"Authorization": f"Bearer {KEY}"})
    assert ask(server, KEY).status == 200, "the model is ready, although another test has killed its engine"
    before = len(granted(server))
    with processes.stopped(server.engine_pid(MODEL)):
        streams = [greedy.start("POST", CHAT, body(20, stream=True)) for _ in range(16)]
        wait_for(lambda: server.state()["granted"] == 4 and server.state()["queued"] == 12, "4 run and 12 wait")
        with_id = {"Authorization": "Bearer one", "X-Request-ID": "late"}
        late = RawHttpClient(server.port, with_id).start("POST", CHAT, body(1))
        wait_for(lambda: "one" in keys_that_wait(server), "it waits")
        stays(
            lambda: "one" in keys_that_wait(server),
            "until it is told its position",
            ANNOUNCED_AFTER_S + 2 * RECONCILE_INTERVAL_S,
        )
        # The supervisor, which may have stood still, runs what is due before it answers again.
        assert "one" in keys_that_wait(server)
    late.finish()
    assert 1 <= int(late.headers["x-queue-position"]) <= 4
    for stream in streams:
        assert stream.finish().done
    wait_for(lambda: len(granted(server)) == before + 17, "the log has all grants")
    assert granted(server)[before:].index("late") < 10, "before some of the other key, which came before it"


def granted(server: LemonbusServer) -> list[str]:
    """The ids of the requests that got a slot of the model, in their order."""
    return [line["request_id"] for line in server.lines if line["event"] == "granted" and line["model"] == MODEL]


@pytest.mark.parametrize("process", ["engine", "worker"])
def test_tokens_of_an_answer_whose_engine_or_worker_dies_count_too(server: LemonbusServer, process: str) -> None:
    client = RawHttpClient(server.port, {"Authorization": f"Bearer loses-{process}"})
    stream = client.start("POST", CHAT, body(8000, stream=True))
    stream.until(lambda it: len(it.events) > 230)
    pid = server.engine_pid(MODEL) if process == "engine" else server.worker_pid(MODEL)
    processes.kill(pid)
    stream.finish(10)
    assert stream.error["tokens_sent"] > 200

    def refused() -> bool:
        answer = client.post(CHAT, body())
        return (answer.status, answer.headers.get("x-ratelimit-remaining-tokens")) == (429, "0")

    wait_for(refused, "what was sent is counted")


def test_a_prompt_that_is_scored_in_many_requests_of_an_engine_counts_once(server: LemonbusServer) -> None:
    client = RawHttpClient(server.port, {"Authorization": "Bearer evaluates"})
    scored = {"model": MODEL, "prompt": ["é" * 4, "b"], "max_tokens": 1, "logprobs": 1, "echo": True}
    assert [client.post("/v1/completions", scored).status for _ in range(3)] == [200, 200, 429]
