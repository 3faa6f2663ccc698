"""Requests that come at once exceed a limit of tokens at a real server by the last one that was admitted, not by all of them."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from protocol.requests.text_limits import BYTES_PER_TOKEN
from tests.conftest import KEY
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient, run_concurrently
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MODEL: Final = "extra.tiny-chat"
CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
AT_ONCE: Final = 50
FIT: Final = 5
ANSWER: Final = 40
UNLIMITED_ANSWER: Final = 4096
"""What docs/limits.md says is reserved for an answer whose request has no limit of its own."""

_numbers: Final = itertools.count()


def chat(text: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "ignore_eos": True, **fields}


def completions(prompts: list[str], **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompts, "ignore_eos": True, **fields}


def cost(exchange: HttpExchange) -> int:
    total: int = exchange.json()["usage"]["total_tokens"]
    return total


@pytest.fixture(scope="module")
def server(keyed_server: LemonbusServer) -> LemonbusServer:
    answer = RawHttpClient(keyed_server.port, {"Authorization": f"Bearer {KEY}"}).post(CHAT, chat(max_tokens=1))
    assert answer.status == 200, "the model is loaded"
    return keyed_server


def one_cost(server: LemonbusServer, path: str, body: dict[str, Any]) -> int:
    """Return the tokens of one such request."""
    return cost(RawHttpClient(server.port, {"Authorization": f"Bearer {KEY}"}).post(path, body))


def new_client(server: LemonbusServer, **limits: int) -> RawHttpClient:
    """Return a client with a new key."""
    name = f"at-once-{next(_numbers)}"
    key = ApiKey(name=name, sha256=digest(name), scopes=[Scope.INFERENCE], **limits)
    write_keys(Path(server.settings.state_dir) / KEYS_FILE, [key])
    return RawHttpClient(server.port, {"Authorization": f"Bearer {name}"})


def at_once(
    server: LemonbusServer, client: RawHttpClient, path: str, body: dict[str, Any], most_running: int = 4
) -> list[HttpExchange]:
    """Send requests of which none ends before each was refused or admitted; return the answers of those that were admitted."""
    refused: list[HttpExchange] = []
    admitted: list[HttpExchange] = []

    def ask() -> None:
        answer = client.post(path, body, patience=60.0)
        (admitted if answer.status == 200 else refused).append(answer)

    def decided() -> bool:
        answered, state = len(refused), server.state()
        running = min(most_running, state["granted"])  # a list takes all four slots
        return bool(answered + running + state["queued"] == AT_ONCE)

    with ThreadPoolExecutor(AT_ONCE) as pool, processes.stopped(server.engine_pid(MODEL)):
        for _ in range(AT_ONCE):
            pool.submit(ask)
        wait_for(decided, "each was admitted or refused", 30.0)
    assert {(each.status, each.headers["retry-after"]) for each in refused} <= {(429, "1")}
    assert len(admitted) + len(refused) == AT_ONCE
    server.assert_idle()
    return admitted


@pytest.mark.parametrize("period", ["minute", "day", "month"])
@pytest.mark.parametrize(
    ("path", "field", "body", "output"),
    [
        (CHAT, "messages", chat(max_tokens=ANSWER), ANSWER),
        (CHAT, "messages", chat("hello " * 300, max_tokens=1), 1),
        (COMPLETIONS, "prompt", completions(["hello"] * 40, max_tokens=2), 40 * 2),
    ],
    ids=["long answers", "long prompts", "a list in pieces"],
)
def test_only_the_last_of_them_exceeds_the_limit(
    server: LemonbusServer, path: str, field: str, body: dict[str, Any], output: int, period: str
) -> None:
    each = one_cost(server, path, body)
    limit = FIT * each
    client = new_client(server, **{f"tokens_per_{period}": limit})
    began = time.monotonic()
    admitted = at_once(server, client, path, body, most_running=1 if field == "prompt" else 4)
    regained = limit * (time.monotonic() - began) / 60 if period == "minute" else 0.0
    reserved = len(msgspec.json.encode(body[field])) // BYTES_PER_TOKEN + output
    assert reserved < each, "a token of this model is a byte, which no estimate expects"
    assert len(admitted) >= FIT
    assert {cost(answer) for answer in admitted} == {each}
    assert len(admitted) * each <= limit + regained + each + (len(admitted) - 1) * (each - reserved)


def test_an_answer_without_a_limit_of_its_own_reserves_what_most_answers_need(server: LemonbusServer) -> None:
    client = new_client(server, tokens_per_day=2 * UNLIMITED_ANSWER)
    assert len(at_once(server, client, CHAT, chat(grammar='root ::= "a"', ignore_eos=False))) == 2


def test_responses_in_the_background_reserve_their_tokens_before_they_begin(server: LemonbusServer) -> None:
    client = new_client(server, tokens_per_day=FIT * ANSWER)
    body = {"model": MODEL, "input": "hi", "max_output_tokens": ANSWER, "background": True}
    with processes.stopped(server.engine_pid(MODEL)):  # none of them ends meanwhile
        answers = run_concurrently(AT_ONCE, lambda _: client.post("/v1/responses", body))
    statuses = [answer.status for answer in answers]
    assert statuses.count(200) + statuses.count(429) == AT_ONCE
    assert FIT - 1 <= statuses.count(200) <= FIT
    server.assert_idle()
