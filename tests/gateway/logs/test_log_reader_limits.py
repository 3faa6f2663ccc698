"""How many readers of the log there may be, and what one too many is told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.access.connection_places import KEPT_FOR_ADMINS
from gateway.logs.stream import MAX_READERS, MAX_READERS_OF_KEY
from tests.gateway.access.key_files import bearer, key, secret_of, store
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.process.chat_requests import error_of
from tests.gateway.raw_http import parsed, read_until

Answers = list[tuple[int, dict[str, str], bytes]]


Follow = Callable[..., Answers]


@pytest.fixture
def follow() -> Iterator[Follow]:
    """Connect as a reader, with a key or without, ``count`` times; return the answers that are refusals."""
    with contextlib.ExitStack() as stack:

        def connect(harness: GatewayHarness, name: str = "", count: int = 1) -> Answers:
            key_header = f"x-api-key: {secret_of(name)}\r\n" if name else ""
            head = f"GET /logs/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{key_header}"
            request = f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
            refusals = []
            for _ in range(count):
                reader = stack.enter_context(harness.connect())
                reader.sendall(request)
                answer = read_until(reader, b"\r\n\r\n")
                if b" 101 " not in answer:
                    refusals.append(parsed(answer if answer.endswith(b"}}") else answer + read_until(reader, b"}}")))
            return refusals

        yield connect


def test_readers_beyond_the_limit_get_a_status_before_the_handshake(tmp_path: Path, follow: Follow) -> None:
    with running_gateway(tmp_path / "r", api_key="") as harness:
        assert follow(harness, count=MAX_READERS) == []
        (response,) = follow(harness)
        assert (response[0], response[1]["retry-after"], error_of(response)["code"]) == (503, "5", "overloaded")
        assert harness.get("/logs/stream")[0] == 503, "what the handshake would be answered with"


def test_a_key_has_a_part_of_the_readers_and_administrators_always_get_in(tmp_path: Path, follow: Follow) -> None:
    names = [f"logs{number}" for number in range(MAX_READERS // MAX_READERS_OF_KEY)]
    state = tmp_path / "state"
    store(state, key("root", scopes=["admin"]), *(key(name, scopes=["logs"]) for name in names))
    with running_gateway(tmp_path / "r", state_dir=str(state)) as harness:
        (one_too_many,) = follow(harness, names[0], MAX_READERS_OF_KEY + 1)
        assert (one_too_many[0], one_too_many[1]["retry-after"]) == (429, "5")
        assert "readers with the API key logs0 already follow the log" in error_of(one_too_many)["message"]
        assert harness.get("/logs/stream", **bearer(names[0]))[0] == 429
        for name in names[1:-1]:
            assert follow(harness, name, MAX_READERS_OF_KEY) == []
        (refused,) = follow(harness, names[-1])
        assert (refused[0], error_of(refused)["code"]) == (503, "overloaded")
        assert follow(harness, "root", KEPT_FOR_ADMINS) == []
        (full,) = follow(harness, "root")
        assert full[0] == 503
