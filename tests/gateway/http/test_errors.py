"""Failures become one JSON body, in whatever layer they were found."""

from __future__ import annotations

import falcon
import falcon.testing
import msgspec
import pytest

from gateway.http import errors
from gateway.http.errors import ErrorFormat, ErrorFormats
from protocol.failures import HTTP_ERRORS, Code, Failure
from tests.gateway.process.chat_requests import error_of
from tests.gateway.raw_http import parsed


@pytest.mark.parametrize("code", list(Code))
def test_the_body_has_every_key_and_no_detail(code: Code) -> None:
    failure = Failure(code, "what happened", param="p", detail="/a/path of ours")
    body = errors.error_body(failure, "r.1")
    assert b"path" not in body
    assert msgspec.json.decode(body) == {
        "status": "error",
        "message": "what happened",
        "error": {
            "message": "what happened",
            "type": HTTP_ERRORS[code].type,
            "code": code.value,
            "param": "p",
            "request_id": "r.1",
        },
    }


def test_an_error_in_a_stream_has_the_number_of_tokens_sent() -> None:
    failure = Failure(Code.BACKEND_DIED, "dead", model="tiny", tokens_sent=5)
    assert msgspec.json.decode(errors.stream_error(failure, "r.1")) == {
        "error": {
            "message": "dead",
            "type": "model_error",
            "code": "backend_died",
            "param": None,
            "request_id": "r.1",
            "model": "tiny",
            "tokens_sent": 5,
        }
    }


@pytest.mark.parametrize(("seconds", "header"), [(0.0, "1"), (0.2, "1"), (1.0, "1"), (1.1, "2"), (59.5, "60")])
def test_retry_after_is_in_whole_seconds(seconds: float, header: str) -> None:
    failure = Failure(Code.OVERLOADED, "full", retry_after=seconds)
    assert errors.retry_headers(failure) == {"Retry-After": header}


@pytest.mark.parametrize("code", list(Code))
def test_every_503_says_when_to_try_again(code: Code) -> None:
    failure = Failure(code, "no")
    waiting_cures = failure.http_status == 503 and code not in (Code.OFFLINE, Code.DOWNLOAD_PAUSED)
    assert errors.retry_headers(failure).get("Retry-After") == ("1" if waiting_cures else None)


@pytest.mark.parametrize(
    ("failure", "final"),
    [
        (Failure(Code.UNSUPPORTED, "no"), True),
        (Failure(Code.OFFLINE, "no"), True),
        (Failure(Code.DOWNLOAD_PAUSED, "no"), True),
        (Failure(Code.CONFLICT, "no"), True),
        (Failure(Code.BACKEND_NOT_INSTALLED, "no"), True),
        (Failure(Code.CHECKPOINT_NOT_FOUND, "no"), True),
        (Failure(Code.INVALID_REQUEST, "no"), True),
        (Failure(Code.INVALID_REQUEST, "no", status=408), False),
        (Failure(Code.OVERLOADED, "no", status=429, retry_after=3), False),
        (Failure(Code.BACKEND_DIED, "no"), False),
        (Failure(Code.DOWNLOAD_FAILED, "no"), False),
        (Failure(Code.DOWNLOAD_FAILED, "no", retry_after=5), False),
        (Failure(Code.INTERNAL, "no"), False),
    ],
)
def test_a_refusal_that_no_repetition_cures_says_so(failure: Failure, final: bool) -> None:
    headers = errors.retry_headers(failure)
    assert headers.get("X-Should-Retry") == ("false" if final else None)
    assert not (final and "Retry-After" in headers)


@pytest.mark.parametrize("status", [400, 414, 417, 431, 501])
def test_a_whole_response_ends_the_connection(status: int) -> None:
    response = errors.whole_response(Failure(Code.INVALID_REQUEST, "no", status=status), "r.1", ErrorFormat())
    code, headers, body = parsed(response)
    assert (code, headers["connection"], headers["content-length"]) == (status, "close", str(len(body)))
    assert error_of((code, headers, body))["request_id"] == "r.1"


class _Form(ErrorFormat):
    def __init__(self, *prefixes: str) -> None:
        self.error_prefixes = prefixes


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("/api/tags", "/api"),
        ("/api", "/api"),
        ("/api/v1/models", "/api/v1"),
        ("/api/v1/messages/count_tokens", "/api/v1/messages"),
        ("/api/v12", "/api"),
        ("/apiary", ""),
        ("/v1/models", ""),
        ("", ""),
    ],
)
def test_the_longest_prefix_names_the_form_of_an_error(path: str, prefix: str) -> None:
    formats = ErrorFormats(_Form(""), [_Form("/api"), _Form("/api/v1", "/v9"), _Form("/api/v1/messages")])
    assert prefix in formats.for_path(path).error_prefixes


@pytest.mark.parametrize(("code", "line"), [(Code.CANCELLED, "499 Client Closed Request"), (Code.INTERNAL, "500 ")])
def test_every_status_has_its_phrase(code: Code, line: str) -> None:
    response = falcon.Response()
    errors.write_error(falcon.Request(falcon.testing.create_environ()), response, Failure(code, "no"))
    assert response.status.startswith(line)
