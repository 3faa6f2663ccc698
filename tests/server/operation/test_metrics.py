"""`/metrics` of a real server: counters grow exactly by the requests that were sent, and no hung process delays it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.clients.http_exchange import HttpExchange
from tests.support.metric_rules import broken_rules, promtool_problems
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for
from workers.worker.engine_metrics import ENGINE_DEADLINE_S

CHAT, EMBED = "extra.tiny-chat", "extra.tiny-embed"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def server(keyed_server: LemonbusServer) -> LemonbusServer:
    """A server on which one model is loaded."""
    client = RawHttpClient(keyed_server.port, keyed_server.admin_headers)
    assert client.post("/v1/unload", {}).status == 200
    assert client.post("/v1/load", {"model_name": CHAT}).status == 200
    return keyed_server


@pytest.fixture
def client(server: LemonbusServer) -> RawHttpClient:
    return RawHttpClient(server.port, server.admin_headers)


def scrape(client: RawHttpClient) -> Samples:
    answer = client.get("/metrics?mullama=true", patience=10.0)
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return samples_of(answer)


def complete_scrape(client: RawHttpClient) -> Samples:
    """Scrape until no process was late: the server waits a moment for each, then answers without what it has not got."""

    def soon() -> HttpExchange | None:
        began = time.monotonic()
        answer = client.get("/metrics?mullama=true", patience=10.0)
        return answer if time.monotonic() - began < ENGINE_DEADLINE_S else None

    return samples_of(wait_for(soon, "every process answers in time", 30.0))


def samples_of(answer: HttpExchange) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


def test_a_key_is_needed(server: LemonbusServer) -> None:
    assert server.client.get("/metrics").status == 401


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_is_counted_once(client: RawHttpClient, stream: bool) -> None:
    before = complete_scrape(client)
    answer = client.chat(CHAT, max_tokens=7, stream=stream)
    assert answer.status == 200, answer
    after = complete_scrape(client)

    def rise(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    stats = client.get("/v1/stats").json()
    for prefix in ("lemonbus_", "mullama_"):
        assert rise(f"{prefix}requests_total", endpoint="chat") == 1
        assert rise(f"{prefix}requests_total", endpoint="embeddings") == 0
        assert rise(f"{prefix}tokens_generated_total") == 7
        assert rise(f"{prefix}prompt_tokens_total") == stats["prompt_tokens"] > 0
        assert rise(f"{prefix}request_duration_seconds_count") == 1
        assert value(after, f"{prefix}tokens_per_second", model=CHAT) > 0
        assert value(after, f"{prefix}models_loaded") == 1
        assert value(after, f"{prefix}model_parameters", model=CHAT) > 1000
        assert value(after, f"{prefix}model_context_size", model=CHAT) == 8192
        assert (f"{prefix}model_gpu_layers", frozenset({("model", CHAT)})) in after
        assert value(after, f"{prefix}memory_used_bytes") > 1_000_000
    labels = {"endpoint": "chat/completions", "dialect": "openai"}
    assert rise("lemonbus_http_requests_total", code="200", **labels) == 1
    assert rise("lemonbus_http_request_duration_seconds_count", endpoint="chat/completions") == 1
    assert rise("lemonbus_queue_wait_seconds_count", model=CHAT) == 1
    assert rise("lemonbus_first_token_seconds_count", model=CHAT) == 1
    assert rise("lemonbus_inter_token_seconds_count", model=CHAT) == 6
    assert rise("lemonbus_model_generated_tokens_total", model=CHAT) == 7
    assert rise("llamacpp_tokens_predicted_total", model=CHAT) == 7
    assert value(after, "lemonbus_engine_metrics_up", model=CHAT) == 1
    assert value(after, "lemonbus_slots_busy", model=CHAT) == 0
    assert value(after, "lemonbus_slots", model=CHAT) > 0
    assert value(after, "lemonbus_worker_memory_bytes", model=CHAT) > 1_000_000
    assert not any(name == "lemonbus_errors_total" and rise(name, **dict(given)) for name, given in after)


def test_the_rules_for_names_are_kept(client: RawHttpClient) -> None:
    assert client.chat(CHAT, max_tokens=1).status == 200
    text = client.get("/metrics", patience=10.0).body.decode()
    assert "\nmullama_" not in text
    assert broken_rules(text) == []
    assert promtool_problems(text) == ""


def test_mullamas_names_are_there_if_they_are_asked_for(client: RawHttpClient) -> None:
    assert "\nmullama_info" in client.get("/metrics?mullama=true").body.decode()
    answer = client.get("/metrics?mullama=perhaps")
    assert (answer.status, answer.json()["error"]["param"]) == (400, "mullama")


def requests_of_status(client: RawHttpClient) -> int:
    return int(client.get("/api/system/status").json()["stats"]["requests_total"])


@pytest.mark.parametrize(("path", "counted"), [("/api/generate", "generate"), ("/api/chat", "chat")])
def test_mullamas_routes_have_their_names(client: RawHttpClient, path: str, counted: str) -> None:
    before = complete_scrape(client)
    body = {"model": CHAT, "prompt": "hi", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    assert client.post(path, body).status == 200
    after = complete_scrape(client)
    for endpoint in ("chat", "generate"):
        labels = {"endpoint": endpoint}
        rise = value(after, "mullama_requests_total", **labels) - value(before, "mullama_requests_total", **labels)
        assert rise == (endpoint == counted)


def test_metrics_and_status_count_the_same_requests(client: RawHttpClient) -> None:
    assert client.chat(CHAT, max_tokens=1).status == 200
    assert client.chat(CHAT, max_tokens="many").status == 400
    total = sum(number for (name, _), number in complete_scrape(client).items() if name == "mullama_requests_total")
    assert requests_of_status(client) == total > 0


def test_an_error_is_counted_once(client: RawHttpClient) -> None:
    before = complete_scrape(client)
    assert client.chat("extra.nothing").status == 404
    assert client.post("/v1/chat/completions", b"{").status == 400
    assert client.get("/v1/no/such/route").status == 404
    after = complete_scrape(client)
    risen = {
        (name, *sorted(dict(labels).items())): after[name, labels] - before.get((name, labels), 0)
        for name, labels in after
        if name in ("lemonbus_errors_total", "lemonbus_refusals_total")
        and after[name, labels] != before.get((name, labels))
    }
    chat = (("dialect", "openai"), ("endpoint", "chat/completions"))
    other = (("dialect", "other"), ("endpoint", "other"))
    assert risen == {
        ("lemonbus_errors_total", ("code", "model_not_found"), *chat): 1,
        ("lemonbus_errors_total", ("code", "invalid_json"), *chat): 1,
        ("lemonbus_errors_total", ("code", "not_found"), *other): 1,
        ("lemonbus_refusals_total", ("code", "model_not_found")): 1,
    }


def test_a_load_is_counted_once(client: RawHttpClient) -> None:
    before = complete_scrape(client)
    assert client.post("/v1/load", {"model_name": EMBED}).status == 200
    assert client.post("/v1/load", {"model_name": EMBED}).status == 200
    after = complete_scrape(client)
    loads = [value(samples, "lemonbus_model_loads_total", model=EMBED, result="ok") for samples in (before, after)]
    times = [value(samples, "lemonbus_model_load_seconds_count", model=EMBED) for samples in (before, after)]
    assert loads[1] == loads[0] + 1
    assert times[1] == times[0] + 1
    assert value(after, "lemonbus_models_loaded") == value(before, "lemonbus_models_loaded") + 1
    assert client.post("/v1/unload", {"model_name": EMBED}).status == 200
    assert value(complete_scrape(client), "lemonbus_models_loaded") == value(before, "lemonbus_models_loaded")


def test_tokens_of_a_cancelled_stream_count(client: RawHttpClient) -> None:
    before = value(complete_scrape(client), "lemonbus_tokens_generated_total")
    stream = client.start_chat(CHAT, stream=True, max_tokens=4000, ignore_eos=True)
    stream.until(lambda it: len(it.events) > 5)
    stream.hang_up()
    wait_for(lambda: value(scrape(client), "lemonbus_tokens_generated_total") > before + 3, "its tokens are counted")
    wait_for(lambda: value(scrape(client), "lemonbus_requests_active") == 0, "no request is active")


def test_a_stopped_engine_does_not_make_it_late(server: LemonbusServer, client: RawHttpClient) -> None:
    with processes.stopped(server.engine_pid(CHAT)):
        for _ in range(3):
            samples = scrape(client)
            assert value(samples, "lemonbus_engine_metrics_up", model=CHAT) == 0
            assert not any(name.startswith("llamacpp_") for name, _ in samples)
            assert value(samples, "lemonbus_models_loaded") == 1
    wait_for(lambda: value(scrape(client), "lemonbus_engine_metrics_up", model=CHAT) == 1, "it is asked again")


def test_a_stopped_worker_does_not_make_it_late(server: LemonbusServer, client: RawHttpClient) -> None:
    (worker,) = [model["worker_pid"] for model in client.get("/v1/health").json()["lemonbus"]["models"]]
    with processes.stopped(worker):
        samples = scrape(client)
        assert value(samples, "lemonbus_engine_metrics_up", model=CHAT) == 0
        assert value(samples, "lemonbus_models_loaded") == 1


def request_line(server: LemonbusServer, label: str) -> dict[str, Any]:
    lines = (line for line in server.lines if (line["event"], line.get("request_id")) == ("request", label))
    return next(lines, {})


def test_the_log_line_of_a_request_has_its_figures(server: LemonbusServer, client: RawHttpClient) -> None:
    for label, stream in (("figures.1", False), ("figures.2", True)):
        answer = client.start_chat(CHAT, {"X-Request-ID": label}, max_tokens=5, stream=stream).finish()
        assert answer.status == 200
        wait_for(lambda label=label: request_line(server, label), "its log line")
        line = request_line(server, label)
        assert line["output_tokens"] == 5
        assert line["prompt_tokens"] > 0
        assert 0 <= line["cached_tokens"] <= line["prompt_tokens"]
        assert 0 <= line["queue_s"] < line["ms"] / 1000
        assert 0 < line["first_token_s"] <= line["ms"] / 1000
