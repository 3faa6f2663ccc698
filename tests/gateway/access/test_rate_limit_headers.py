"""What a response says about its key's limits: the forms of OpenAI and Anthropic, on answers and on refusals."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gevent
import pytest

from gateway.http.rate_limit_headers import anthropic_limit_headers, openai_limit_headers
from protocol.failures import Code, Failure
from protocol.messages import work
from protocol.messages.caller import KeyUsage, LimitStatus, RateLimits
from tests.gateway.access.key_files import bearer, key, store
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient, StreamedAnswer

NOW = datetime(2031, 5, 1, 12, 0, 0, tzinfo=UTC)
LIMITS = RateLimits(LimitStatus(60, 59, 1.0), LimitStatus(1000, 0, 90.5))
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_openais_headers() -> None:
    assert openai_limit_headers(LIMITS, NOW) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m30.5s",
    }


def test_anthropics_headers() -> None:
    assert anthropic_limit_headers(LIMITS, NOW) == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "59",
        "anthropic-ratelimit-requests-reset": "2031-05-01T12:00:01Z",
        "anthropic-ratelimit-tokens-limit": "1000",
        "anthropic-ratelimit-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-reset": "2031-05-01T12:01:30Z",
    }


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0s"), (0.0004, "0s"), (59.9996, "1m0s"), (12.345, "12.345s"), (86_400.0, "24h0m0s"), (3_661.5, "1h1m1.5s")],
)
def test_durations(seconds: float, shown: str) -> None:
    headers = openai_limit_headers(RateLimits(LimitStatus(1, 0, seconds)), NOW)
    assert headers["x-ratelimit-reset-requests"] == shown


def test_without_limits_there_are_no_headers() -> None:
    assert openai_limit_headers(RateLimits(), NOW) == anthropic_limit_headers(RateLimits(), NOW) == {}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppClient:
    """An application for which the supervisor reports :data:`LIMITS` before each answer."""
    store(tmp_path, key("ci", requests_per_minute=60))
    app = AppClient(tmp_path, state_dir=str(tmp_path))
    answer = app.bus._answer

    def report_and_answer(ask: work.SubmitRequest) -> None:
        app.bus.handlers.on_message(KeyUsage(ask.number, ask.attempt, LIMITS), b"")
        answer(ask)

    monkeypatch.setattr(app.bus, "_answer", report_and_answer)
    return app


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_waits_for_a_report_that_comes_after_its_events(
    app: AppClient, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """The supervisor sends the report first, but the events come from a worker, so they may arrive in any order."""
    answer = app.bus._answer
    late: list[KeyUsage] = []
    deliver = app.bus.handlers.on_message

    def keep_back(message: Any, payload: bytes) -> None:
        if isinstance(message, KeyUsage):
            late.append(message)
        else:
            deliver(message, payload)

    def answer_first(ask: work.SubmitRequest) -> None:
        monkeypatch.setattr(app.bus.handlers, "on_message", keep_back)
        answer(ask)
        gevent.get_hub().loop.run_callback(lambda: deliver(late.pop(), b""))

    monkeypatch.setattr(app.bus, "_answer", answer_first)
    app.answers["chat/completions"] = (
        StreamedAnswer([{"choices": [{"index": 0, "delta": {"content": "hi"}}]}])
        if stream
        else {"choices": [{"message": {"content": "hi"}}]}
    )
    result = app("POST", "/v1/chat/completions", {**CHAT, "stream": stream}, headers=bearer("ci"))
    assert (result.status_code, result.headers["x-ratelimit-remaining-requests"]) == (200, "59")
    assert "hi" in result.text


def test_an_answer_says_what_its_key_has_left(app: AppClient) -> None:
    app.answers["chat/completions"] = {"choices": [{"message": {"content": "hi"}}]}
    result = app("POST", "/v1/chat/completions", CHAT, headers=bearer("ci"))
    assert result.status_code == 200
    assert openai_limit_headers(LIMITS, NOW).items() <= {k.lower(): v for k, v in result.headers.items()}.items()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_refusal_has_retry_after_and_the_form_of_its_api(app: AppClient, path: str) -> None:
    failure = Failure(Code.RATE_LIMITED, "The limit of the API key ci is 60 requests a minute", retry_after=0.4)
    app.answers["chat/completions"] = failure
    result = app("POST", path, {**CHAT, "max_tokens": 5}, headers=bearer("ci"))
    headers = {name.lower(): value for name, value in result.headers.items()}
    assert (result.status_code, headers["retry-after"]) == (429, "1")
    if path != "/v1/messages":
        assert is_error(result, 429, "rate_limit_error")["error"]["code"] == "rate_limit_exceeded"
        assert headers["x-ratelimit-remaining-requests"] == "59"
    else:
        assert (result.json["type"], result.json["error"]["type"]) == ("error", "rate_limit_error")
        assert headers["anthropic-ratelimit-requests-remaining"] == "59"
        assert "x-ratelimit-remaining-requests" not in headers


def test_a_response_that_waited_says_where_it_was_in_the_queue(app: AppClient, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = app.bus._answer

    def queue_and_answer(ask: work.SubmitRequest) -> None:
        app.bus.handlers.on_message(work.QueueStatus(ask.number, ask.attempt, 3, 4.25), b"")
        answer(ask)

    monkeypatch.setattr(app.bus, "_answer", queue_and_answer)
    for outcome in ({"choices": [{"message": {"content": "hi"}}]}, Failure(Code.UNLOADED, "gone")):
        app.answers["chat/completions"] = outcome
        headers = app("POST", "/v1/chat/completions", CHAT, headers=bearer("ci")).headers
        assert (headers["x-queue-position"], headers["x-queue-wait"]) == ("3", "4.250")
