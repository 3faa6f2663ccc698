"""The load generator of the benchmarks recognizes complete and broken answers."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Sequence

import pytest

from tests.benchmarks.engine_alone import engine_alone
from tests.benchmarks.load_generator import LoadClient, LoadJob, LoadResult, run
from tests.benchmarks.one_token import CHAT, EMBED
from tests.benchmarks.request_forms import FORMS
from tests.support.server import LemonbusServer

_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
_TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
_END = b"\r\n0\r\n\r\n"


@pytest.mark.parametrize("form", [name for name, form in FORMS.items() if form.token])
def test_no_stream_of_any_dialect_counts_as_broken(shared_server: LemonbusServer, form: str) -> None:
    result = run(LoadJob(shared_server.port, CHAT, clients=2, rounds=2, tokens=5, stream=True, form=form))
    assert (result.requests, result.tokens, result.broken) == (4, 20, 0)
    assert len(result.first) == 4


def test_no_stream_of_the_engine_alone_counts_as_broken(shared_server: LemonbusServer) -> None:
    assert shared_server.client.post("/v1/load", {"model_name": CHAT}).status == 200
    with engine_alone(shared_server.engine(CHAT)) as (port, _):
        result = run(LoadJob(port, CHAT, clients=2, rounds=2, tokens=5, stream=True))
    assert (result.requests, result.tokens, result.broken) == (4, 20, 0)


@pytest.mark.parametrize(
    ("model", "form"), [(CHAT, "chat/completions"), (EMBED, "embeddings"), (EMBED, "embeddings of a sentence")]
)
def test_no_whole_answer_counts_as_broken(shared_server: LemonbusServer, model: str, form: str) -> None:
    result = run(LoadJob(shared_server.port, model, clients=2, rounds=2, tokens=1, stream=False, form=form))
    assert (result.requests, result.broken) == (4, 0)


def test_a_token_that_arrives_in_two_pieces_counts_once() -> None:
    stream = _HEAD + _ROLE + 2 * _TOKEN + _END
    for cut in range(1, len(stream)):
        result = _answered([stream[:cut], stream[cut:]], tokens=2)
        assert (result.tokens, result.requests, result.broken) == (2, 1, 0), stream[:cut]


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(_HEAD + _ROLE + _TOKEN + _END, id="too few tokens"),
        pytest.param(_HEAD + _ROLE + 3 * _TOKEN + _END, id="too many tokens"),
        pytest.param(_HEAD + _ROLE + 2 * _TOKEN, id="no end"),
    ],
)
def test_a_broken_stream_counts_as_broken(stream: bytes) -> None:
    assert _answered([stream], tokens=2).broken == 1


def test_an_error_counts_as_broken() -> None:
    answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"
    assert _answered([answer], tokens=1, stream=False).broken == 1


def _answered(pieces: Sequence[bytes], tokens: int, *, stream: bool = True) -> LoadResult:
    """Return what a client reads from these pieces, one at a time, and from the connection's end."""
    result = LoadResult()
    with socket.create_server(("127.0.0.1", 0)) as listener, selectors.DefaultSelector() as selector:
        job = LoadJob(listener.getsockname()[1], "any", clients=1, rounds=1, tokens=tokens, stream=stream)
        client = LoadClient(job, b"GET / HTTP/1.1\r\n\r\n", result)
        client.begin(selector)
        server, _ = listener.accept()
        server.recv(65536)
        ended = False
        with client.socket:
            with server:
                for piece in pieces:
                    server.sendall(piece)
                    assert selector.select(10.0)
                    ended = client.read()
            if not ended:
                assert selector.select(10.0)
                assert client.read()
    return result
