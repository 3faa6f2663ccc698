"""A real gateway process and invalid requests, foreign pages, and clients without the API key."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.gateway.fake_supervisor import wait_for
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.process.chat_requests import CHAT, PATH, answer_whole, error_of
from tests.gateway.raw_http import parsed, read_to_end, read_until, request

CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: %b\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (CHUNKED % b"odd", 501),
        (CHUNKED % b"chunked" + b"zz\r\n", 400),
    ],
)
def test_refused_bytes_are_answered_in_json(harness: GatewayHarness, raw: bytes, status: int) -> None:
    response = harness.raw(raw)
    assert response[0] == status
    assert response[1]["connection"] == "close"
    assert response[1]["access-control-allow-origin"] == "*", "a page may read why"
    error_of(response)


def test_a_refused_head_is_answered_under_its_own_request_id(harness: GatewayHarness) -> None:
    response = harness.raw(b"POST /v1/load HTTP/1.1\r\nX-Request-ID: head.1\r\nHost: a/b\r\n\r\n")
    assert error_of(response)["request_id"] == "head.1"


@pytest.mark.parametrize("head", [b"HTTP/1.0\r\n", b"HTTP/1.1\r\nHost:\r\n"])
def test_a_valid_or_optional_host_header_is_accepted(harness: GatewayHarness, head: bytes) -> None:
    assert harness.raw(b"GET /live " + head + b"Connection: close\r\n\r\n")[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/nowhere", b"", 404, "not_found"),
        ("GET", PATH, b"", 405, "method_not_allowed"),
        ("POST", "/live", b"", 405, "method_not_allowed"),
        ("POST", PATH, b"{", 400, "invalid_json"),
        ("POST", PATH, b"[]", 400, "invalid_request"),
        ("POST", PATH, b"", 400, "invalid_json"),
        ("POST", PATH, {**CHAT, "stop": list("abcde")}, 400, "invalid_request"),
        ("POST", PATH, {**CHAT, "max_tokens": 1, "max_completion_tokens": 1}, 400, "invalid_request"),
        ("POST", PATH, {"messages": []}, 400, "invalid_request"),
        ("POST", "/v1/completions", {"prompt": "x", "stream": True, "logprobs": True}, 400, "invalid_request"),
        ("POST", "/v1/completions", {"prompt": "x", "stream": True, "echo": True}, 400, "invalid_request"),
        ("POST", "/v1/completions", {"prompt": "", "n_cmpl": 2}, 400, "invalid_request"),
        ("POST", "/v0/completions", {"prompt": "x", "n": 2, "n_cmpl": 1}, 400, "invalid_request"),
        ("POST", PATH, {**CHAT, "n_cmpl": 2}, 400, "invalid_request"),
        ("POST", "/v1/embeddings", {"input": "x", "encoding_format": "hex"}, 400, "invalid_request"),
        ("POST", PATH, b"x" * 1_100_000, 413, "body_too_large"),
        ("BREW", "/live", b"", 405, "method_not_allowed"),
    ],
)
def test_bad_requests_are_clear_4xx(
    harness: GatewayHarness, method: str, path: str, body: Any, status: int, code: str
) -> None:
    response = harness.raw(request(method, path, body, X_Request_ID="bad.1"))
    assert response[0] == status
    error = error_of(response)
    assert (error["code"], error["request_id"]) == (code, "bad.1")
    if status == 405:
        assert response[1]["allow"]


USER = b'{"messages":[{"role":"user","content":"x"}],'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PATH, USER + b'"prediction":1e400}'),
        (PATH, USER + b'"reasoning_effort":1e400}'),
        (PATH, b'{"messages":[{"role":"assistant","content":[{"type":"refusal","refusal":"x"}],"other":1e400}]}'),
        ("/v1/completions", b'{"prompt":"x","suffix":-1e400}'),
        ("/v0/completions", b'{"prompt":"x","suffix":-1e400}'),
        ("/v1/embeddings", b'{"input":"x","dimensions":4,"other":1e400}'),
    ],
)
def test_numbers_that_cannot_be_read_are_refused_in_fields_without_a_type(
    harness: GatewayHarness, path: str, body: bytes
) -> None:
    response = harness.raw(request("POST", path, body))
    assert response[0] == 400
    assert error_of(response)["message"] == "the body cannot be read: number out of range"


def test_a_chunked_body_over_the_limit_is_413_before_its_end(harness: GatewayHarness) -> None:
    with harness.connect() as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        response = parsed(read_to_end(connection))
    assert response[0] == 413
    assert response[1]["connection"] == "close"
    error_of(response)


@pytest.mark.parametrize("chunks", [b"ffffffff\r\nabc", b"%x\r\n" % 1_000_001, b"1\r\nx\r\n%x\r\n" % 1_000_000])
def test_chunks_that_announce_more_than_the_limit_are_413_at_once(harness: GatewayHarness, chunks: bytes) -> None:
    with harness.connect() as connection:
        connection.sendall(CHUNKED % b"chunked" + chunks)
        response = parsed(read_until(connection, b"}}"))
        assert (response[0], response[1]["connection"]) == (413, "close")
        assert error_of(response)["code"] == "body_too_large"
        assert read_to_end(connection) == b""


def test_a_body_over_the_limit_is_not_asked_for(harness: GatewayHarness) -> None:
    with harness.connect() as connection:
        length = b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + length)
        assert parsed(read_to_end(connection))[0] == 413


def test_multipart_is_refused_by_a_json_route(harness: GatewayHarness) -> None:
    response = harness.raw(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )
    assert response[0] == 415
    error_of(response)


def test_head_is_get_without_the_body(harness: GatewayHarness) -> None:
    status, headers, body = harness.raw(request("HEAD", "/live", b""))
    assert (status, body, headers["content-length"]) == (200, b"", "15")


def test_pages_may_ask_and_the_headers_they_want_are_echoed(harness: GatewayHarness) -> None:
    status, headers, _ = harness.raw(
        request("OPTIONS", PATH, b"", Origin="http://elsewhere", Access_Control_Request_Headers="authorization, x-a")
    )
    assert status == 204
    assert headers["access-control-allow-origin"] == "*"
    assert headers["access-control-allow-headers"] == "authorization, x-a"


def test_a_cached_response_has_the_cors_header(harness: GatewayHarness) -> None:
    _, headers, _ = harness.raw(request("GET", "/live", b""))
    assert headers["access-control-allow-origin"] == "*"
    assert "access-control-expose-headers" not in headers
    _, headers, _ = harness.raw(request("GET", "/live", b"", Origin="http://elsewhere"))
    assert "X-Request-ID" in headers["access-control-expose-headers"]


def test_foreign_pages_may_not_change_the_server(harness: GatewayHarness) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "http://["},
        {"Host": "evil.example"},
        {"Host": "[::x]"},
        {"Host": "[:::1]"},
        {"Host": ""},
        {"Host": ":13305"},
    ):
        response = harness.raw(
            b"POST /v1/load HTTP/1.1\r\n"
            + b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())
            + (b"" if "Host" in headers else b"Host: localhost\r\n")
            + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"
        )
        assert response[0] == 403
        error_of(response)


VARIANTS = "/v1/pull/variants?checkpoint=x"
"""It changes nothing, but makes the server ask a hub."""


@pytest.mark.parametrize(
    ("site", "origin", "status"),
    [
        ("cross-site", "", 403),
        ("cross-site", "http://evil.example", 403),
        ("cross-site", "http://127.0.0.1:3000", 400),
        ("same-origin", "", 400),
        ("same-site", "", 400),
        ("none", "", 400),
        ("", "", 400),
    ],
)
@pytest.mark.parametrize("path", ["/v0/load", "/api/v0/unload?x=1", VARIANTS])
def test_an_image_or_a_link_of_a_foreign_page_changes_nothing(
    harness: GatewayHarness, path: str, site: str, origin: str, status: int
) -> None:
    headers = {name: value for name, value in (("Sec_Fetch_Site", site), ("Origin", origin)) if value}
    assert harness.raw(request("GET", path, b'{"x":1}', **headers))[0] == status


@pytest.mark.parametrize("path", ["/internal/keys", "/internal/configuration", "/v0/load", "/logs/stream", VARIANTS])
def test_head_is_judged_as_get(harness: GatewayHarness, path: str) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"User_Agent": FIREFOX}, {"Sec_Fetch_Site": "cross-site"}):
        assert harness.raw(request("HEAD", path, b"", **headers))[0] == 403


FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 400),
        ({"User_Agent": "curl/8.14.1", "Accept": "*/*"}, 400),
        ({"User_Agent": "python-requests/2.32.5", "Accept": "*/*", "Accept_Encoding": "gzip"}, 400),
        ({"User_Agent": "node", "Accept": "*/*", "Accept_Language": "*", "Sec_Fetch_Mode": "cors"}, 400),
        ({"User_Agent": FIREFOX, "Accept": "image/avif,image/webp,*/*;q=0.8", "Accept_Language": "en"}, 403),
        ({"User_Agent": FIREFOX, "Accept": "*/*"}, 403),
        ({"User_Agent": "curl/8.14.1", "Referer": "http://evil.example/"}, 403),
        ({"User_Agent": FIREFOX, "Sec_Fetch_Site": "none"}, 400),
        ({"User_Agent": FIREFOX, "Sec_Fetch_Site": "cross-site"}, 403),
        ({"User_Agent": FIREFOX, "Sec_Fetch_Site": "x"}, 403),
        ({"User_Agent": FIREFOX, "Origin": "http://localhost:3000"}, 400),
        ({"User_Agent": FIREFOX, "Origin": "null"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/v0/load", "/api/v0/unload?x=1", VARIANTS])
def test_over_plain_http_a_browser_changes_nothing_by_get(
    harness: GatewayHarness, path: str, headers: dict[str, str], status: int
) -> None:
    """Over plain HTTP, browsers only say to loopback addresses which site an image belongs to."""
    response = harness.raw(request("GET", path, b'{"x":1}', **headers))
    assert response[0] == status
    if status == 403 and "Sec_Fetch_Site" not in headers and "Origin" not in headers:
        assert "by POST" in error_of(response)["message"]


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://evil.example/v1/load", "localhost", 403),
        ("http://evil.example:13305/v1/load", "127.0.0.1:13305", 403),
        ("HTTPS://evil.example/v1/load", "localhost", 403),
        ("http://localhost/v1/load", "evil.example", 400),
        ("http://127.0.0.1:13305/v1/load", "evil.example", 400),
        ("http://evil@localhost/v1/load", "localhost", 400),
    ],
)
def test_a_whole_url_as_target_is_judged_by_its_own_host(
    harness: GatewayHarness, target: str, host: str, status: int
) -> None:
    head = f"POST {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"
    response = harness.raw(head.encode() + b"{}")
    assert response[0] == status
    assert error_of(response)["code"] == ("forbidden" if status == 403 else "invalid_request")


def test_a_name_that_was_allowed_may_change_the_server(tmp_path: Path) -> None:
    def status_for(harness: GatewayHarness, name: str) -> int:
        head = b"POST /v1/params HTTP/1.1\r\n"
        fields = f"Host: {name}:8080\r\nOrigin: http://{name}:8080\r\nConnection: close\r\nContent-Length: 1\r\n\r\n["
        return harness.raw(head + fields.encode())[0]

    with running_gateway(tmp_path / "r", api_key="", allowed_hosts=["Box.lan"]) as harness:
        assert [status_for(harness, name) for name in ("box.lan", "BOX.LAN", "other.lan")] == [400, 400, 403]


def test_every_line_of_the_log_carries_the_request_id(harness: GatewayHarness) -> None:
    harness.post(PATH, b"{", X_Request_ID="logged.1")
    line = wait_for(lambda: next((line for line in harness.lines if line.get("request_id") == "logged.1"), None))
    assert (line["event"], line["status"], line["process"], line["code"]) == ("request", 400, "gateway", "invalid_json")


def test_with_a_key_only_the_probes_are_open(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "r", api_key="secret-/+=") as harness:
        harness.on_request = lambda received: answer_whole(harness, received)
        assert harness.get("/live")[0] == harness.get("/health")[0] == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"x_api_key": "wrong"}, {"Authorization": "Basic x"}):
            response = harness.post(PATH, CHAT, **headers)
            assert (response[0], response[1]["www-authenticate"]) == (401, 'Bearer realm="lemonbus"')
            error_of(response)
        for key, status in (("secret-/+=", 200), ("secret-ä", 401)):
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            body = msgspec.json.encode(CHAT)
            for name in ("Authorization: Bearer", "x-api-key:"):
                fields = f"{name} {key}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                assert harness.raw(head + fields + body)[0] == status
