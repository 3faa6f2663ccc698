"""``GET stats`` as documents 000, 001 and 002 show it: figures of the last request that add up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from gateway.api.lemonade.stats import request_stats
from protocol.messages.health import StatsReport
from tests.compatibility.field_paths import missing
from tests.support.models.tiny_models import prompt_of
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP, EMBED = "extra.tiny-chat", "extra.tiny-loop", "extra.tiny-embed"
PREVIEW = ["time_to_first_token", "tokens_per_second", "input_tokens", "output_tokens", "decode_token_times"]
DOCUMENTED = [*PREVIEW, "prompt_tokens"]
LONG = [{"role": "user", "content": prompt_of(600)}]


@pytest.fixture
def server(shared_server: LemonbusServer) -> LemonbusServer:
    return shared_server


def stats(server: LemonbusServer, model: str = "", prefix: str = "/v1") -> Any:
    return server.client.get(f"{prefix}/stats" + (f"?model={model}" if model else "")).json()


def after(server: LemonbusServer, model: str, **fields: Any) -> Any:
    """The figures after a chat, which come a moment after its last byte."""
    before = stats(server, model)
    asked = server.client.chat(model, **fields)
    assert asked.status == 200, asked
    return wait_for(lambda: (now := stats(server, model)) != before and now, "the figures of the request are there")


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
@pytest.mark.parametrize("stream", [True, False])
def test_every_documented_field_is_there_and_adds_up(server: LemonbusServer, prefix: str, stream: bool) -> None:
    reported = after(server, LOOP, max_tokens=40, stream=stream)
    found = stats(server, prefix=prefix)
    assert found == reported
    assert missing(found, DOCUMENTED) == []
    assert found["output_tokens"] == len(found["decode_token_times"]) == 40
    assert found["prompt_tokens"] >= found["input_tokens"] > 0
    assert 0 < found["time_to_first_token"] < found["total_seconds"]
    assert all(seconds >= 0 for seconds in found["decode_token_times"])
    decoding = sum(found["decode_token_times"])
    assert 0 < decoding < found["total_seconds"] + 0.001
    assert found["tokens_per_second"] == pytest.approx(40 / decoding, rel=0.05)


def test_the_token_that_ends_an_answer_has_a_time_too(server: LemonbusServer) -> None:
    found = after(server, CHAT, stream=True)
    assert found["output_tokens"] == len(found["decode_token_times"]) == 21


@pytest.mark.parametrize(
    "fields",
    [{}, {"logprobs": True, "max_tokens": 30}, {"n": 2}, {"messages": LONG}],
    ids=["brief", "probabilities", "choices", "long"],
)
def test_each_token_of_a_whole_answer_has_a_time(server: LemonbusServer, fields: dict[str, Any]) -> None:
    found = after(server, LOOP, **{"max_tokens": 5, **fields})
    assert found["output_tokens"] == len(found["decode_token_times"]) >= 5
    assert found["tokens_per_second"] > 0
    assert found["time_to_first_token"] > 0


def test_the_times_of_a_whole_answer_were_measured(server: LemonbusServer) -> None:
    """The engine's own answer would only give the mean: all times would be the same."""
    assert len(set(after(server, LOOP, max_tokens=40)["decode_token_times"])) > 1
    server.client.post("/completion", {"model": LOOP, "prompt": "hi", "n_predict": 41})
    wait_for(lambda: stats(server, LOOP)["output_tokens"] == 41, "the figures of the request are there")
    found = stats(server, LOOP)
    assert len(found["decode_token_times"]) == 41
    assert len(set(found["decode_token_times"])) > 1


def test_a_cached_prompt_is_not_processed_again(server: LemonbusServer) -> None:
    message = [{"role": "user", "content": prompt_of(600)}]
    first = after(server, LOOP, messages=message, max_tokens=20)
    again = after(server, LOOP, messages=message, max_tokens=21)
    assert first["prompt_tokens"] == again["prompt_tokens"] > 600
    assert first["input_tokens"] > 500
    assert 0 < again["input_tokens"] < 100


def test_the_last_request_or_the_last_of_a_model(server: LemonbusServer) -> None:
    assert after(server, LOOP, max_tokens=33)["model"] == LOOP
    assert after(server, CHAT)["model"] == CHAT
    assert stats(server)["model"] == CHAT
    assert stats(server, LOOP)["output_tokens"] == 33
    unknown = server.client.get("/v1/stats?model=unknown")
    assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")


def test_an_embedding_generates_nothing(server: LemonbusServer) -> None:
    assert server.client.post("/v1/embeddings", {"model": EMBED, "input": "one two three"}).status == 200
    found = wait_for(lambda: (now := stats(server, EMBED))["prompt_tokens"] and now, "its figures are there")
    assert (found["output_tokens"], found["decode_token_times"], found["tokens_per_second"]) == (0, [], 0.0)


def test_before_the_first_request() -> None:
    found = msgspec.to_builtins(request_stats(StatsReport()))
    assert missing(found, DOCUMENTED) == []
    assert (found["output_tokens"], found["decode_token_times"], found["model"]) == (0, [], None)
