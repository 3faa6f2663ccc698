"""CORS: which requests pages of other origins may send and which answers they may read, in every dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.config.fields import setting_fields
from protocol.failures import Code, Failure
from protocol.messages import work
from tests.gateway.app_client import AppClient, StreamedAnswer

PAGE = {"Origin": "https://page.example"}
LISTED = {"Origin": "https://chat.example.org"}
CHAT = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
ANSWER = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
CHUNK = {"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]}
INFERENCE = [
    ("/v1/chat/completions", CHAT),
    ("/v1/responses", {"model": "m", "input": "hi", "store": False}),
    ("/v1/messages", CHAT),
    ("/chat/completions", CHAT),
    ("/api/chat", {**CHAT, "stream": False}),
]
"""One route of each dialect that uses models."""


@pytest.fixture
def restricted(tmp_path: Path) -> AppClient:
    """A server with a list of origins."""
    client = AppClient(tmp_path, cors_origins=["https://Chat.example.org", "app://notes"])
    client.answers["chat/completions"] = ANSWER
    return client


@pytest.mark.parametrize(("path", "body"), INFERENCE)
def test_every_page_may_read_answers_of_every_dialect(ask: AppClient, path: str, body: dict[str, Any]) -> None:
    ask.answers["chat/completions"] = ANSWER
    result = ask("POST", path, body, headers=PAGE)
    assert (result.status_code, result.headers["access-control-allow-origin"]) == (200, "*")
    exposed = {name.strip().lower() for name in result.headers["access-control-expose-headers"].split(",")}
    assert exposed >= {
        *("x-request-id", "request-id", "retry-after", "x-should-retry", "x-queue-position", "warning"),
        *("x-ratelimit-remaining-tokens", "anthropic-ratelimit-requests-reset"),
    }


@pytest.mark.parametrize(("path", "body"), INFERENCE)
def test_every_page_may_read_errors_of_every_dialect(ask: AppClient, path: str, body: dict[str, Any]) -> None:
    ask.answers["chat/completions"] = Failure(Code.OVERLOADED, "full", retry_after=1)
    for method, at, sent, status in [
        ("POST", path, body, {503, 529}),
        ("POST", path, b"{", {400}),
        ("PUT", path, None, {405}),
        ("GET", path + "/a/b/unknown", None, {404, 501}),  # 501: below a route that OpenAI has
    ]:
        result = ask(method, at, sent, headers=PAGE)
        assert result.status_code in status, f"{method} {at}"
        assert result.headers["access-control-allow-origin"] == "*", f"{method} {at}"


def test_a_stream_has_the_headers(ask: AppClient) -> None:
    ask.answers["chat/completions"] = StreamedAnswer([CHUNK])
    result = ask("POST", "/v1/chat/completions", {**CHAT, "stream": True}, headers=PAGE)
    assert result.text.endswith("data: [DONE]\n\n")
    assert result.headers["access-control-allow-origin"] == "*"
    assert "X-Request-ID" in result.headers["access-control-expose-headers"]


def test_a_refusal_for_want_of_a_key_has_the_headers(tmp_path: Path) -> None:
    keyed = AppClient(tmp_path, api_key="k")
    preflight = ask_first(keyed, "/v1/chat/completions", PAGE)
    assert (preflight.status_code, preflight.headers["access-control-allow-headers"]) == (204, "authorization")
    refused = keyed("POST", "/v1/chat/completions", CHAT, headers=PAGE)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "*")


def ask_first(client: AppClient, path: str, page: dict[str, str]) -> Any:
    """Send a preflight."""
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    return client("OPTIONS", path, headers={**page, **wanted})


@pytest.mark.parametrize("path", [*(path for path, _ in INFERENCE), "/v1/unknown", "/v1/models/a/b"])
def test_a_preflight_is_answered_on_every_path(ask: AppClient, path: str) -> None:
    result = ask_first(ask, path, PAGE)
    assert (result.status_code, result.text) == (204, "")
    assert result.headers["access-control-allow-origin"] == "*"
    methods = set(result.headers["access-control-allow-methods"].split(", "))
    assert methods >= {"GET", "POST", "PUT", "PATCH", "DELETE"}
    assert result.headers["access-control-max-age"] == "600"


@pytest.mark.parametrize("origin", ["https://chat.example.org", "app://notes"])
def test_a_listed_origin_is_named(restricted: AppClient, origin: str) -> None:
    for result in (
        ask_first(restricted, "/v1/chat/completions", {"Origin": origin}),
        restricted("POST", "/v1/chat/completions", CHAT, headers={"Origin": origin}),
        restricted("GET", "/v1/unknown", headers={"Origin": origin}),
    ):
        assert result.headers["access-control-allow-origin"] == origin
        assert result.headers["vary"] == "Origin"


@pytest.mark.parametrize(("path", "body"), INFERENCE)
def test_where_origins_are_listed_other_pages_may_not_use_models(
    restricted: AppClient, path: str, body: dict[str, Any]
) -> None:
    """A form or a ``no-cors`` request needs no preflight, so it would be too late to only hide the answer."""
    for page in (PAGE, {"Origin": "null"}):
        result = restricted("POST", path, body, headers={**page, "Content-Type": "text/plain"})
        assert result.status_code == 403
        assert "cors_origins" in result.text
        assert "access-control-allow-origin" not in result.headers
        assert result.headers["vary"] == "Origin"
    assert not restricted.asked(work.SubmitRequest)
    for page in (LISTED, {}, {"Origin": "http://localhost:3000"}):
        assert restricted("POST", path, body, headers=page).status_code == 200


def test_a_response_without_an_origin_varies_too(restricted: AppClient) -> None:
    result = restricted("GET", "/live")
    assert (result.headers["vary"], "access-control-allow-origin" in result.headers) == ("Origin", False)


@pytest.mark.parametrize(
    "wrong",
    [
        "https://a.example/",
        "a.example",
        "https://",
        "https://a b",
        "null",
        "http://a.example:80",
        "https://a.example:443",
    ],
)
def test_an_origin_that_no_browser_sends_is_a_wrong_setting(wrong: str) -> None:
    with pytest.raises(ValueError, match="Expected `str` matching"):
        setting_fields()["cors_origins"].checked([wrong])


@pytest.mark.parametrize(
    "right", ["*", "https://a.example:80", "http://a.example:443", "http://[::1]:8080", "app://notes"]
)
def test_an_origin_with_another_port_is_a_setting(right: str) -> None:
    assert setting_fields()["cors_origins"].checked([right]) == [right]
