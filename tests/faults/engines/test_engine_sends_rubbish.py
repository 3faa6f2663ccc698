"""An engine that sends rubbish: the client gets an error in every dialect and form, never the end of a complete answer or an empty success."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Final

import pytest

from tests.conftest import StartServer
from tests.fake_engines.generation.sends_rubbish import ENDLESS, EVENTS
from tests.fake_engines.llama_server import program
from tests.support.clients.http_client import run_concurrently
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer

CHAT, EMBED, RERANK = "extra.tiny-chat", "extra.tiny-embed", "extra.tiny-rerank"
LONG, BRIEF = 500, 4
"""Tokens of answers for which the worker asks its engine for a stream, and for a whole answer."""
SILENCE_S: Final = 1.0


def generations(kind: str, tokens: int) -> dict[str, dict[str, Any]]:
    """Return a request of every dialect that names a kind of rubbish."""
    messages = [{"role": "user", "content": kind}]
    return {
        "/v1/chat/completions": {"model": CHAT, "messages": messages, "max_tokens": tokens},
        "/v1/completions": {"model": CHAT, "prompt": kind, "max_tokens": tokens},
        "/v1/responses": {"model": CHAT, "input": kind, "max_output_tokens": tokens},
        "/v1/messages": {"model": CHAT, "messages": messages, "max_tokens": tokens},
        "/api/generate": {"model": CHAT, "prompt": kind, "max_tokens": tokens},
        "/api/chat": {"model": CHAT, "messages": messages, "max_tokens": tokens},
        "/completion": {"model": CHAT, "prompt": kind, "n_predict": tokens},
    }


WHOLE: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"model": EMBED, "input": ""},
    "/api/embed": {"model": EMBED, "input": ""},
    "/embedding": {"model": EMBED, "content": ""},
    "/v1/rerank": {"model": RERANK, "query": "", "documents": ["a"]},
    "/tokenize": {"model": CHAT, "content": ""},
}
"""Requests without streams; the empty field gets the kind of rubbish."""
PATHS = list(generations("", LONG))
ENDS = (b"data: [DONE]", b'"done":true', b"response.completed", b"message_stop", b'"stop":true', b'"finish_reason":"')


@pytest.fixture(scope="module")
def rubbish_server(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    engine = program(tmp_path_factory.mktemp("engine"), "sends_rubbish")
    return start_module_server(
        *("tiny-chat", "tiny-embed", "tiny-rerank"),
        llama_server=engine,
        llamacpp_backend="system",
        gateway_workers=1,
        silence=SILENCE_S,
        slots=2 * len(EVENTS),
        load=[CHAT, EMBED, RERANK],
    )


def answers(
    server: LemonbusServer, path: str, bodies: list[dict[str, Any]]
) -> Iterable[tuple[dict[str, Any], HttpExchange]]:
    """Send all requests at once; return each with its answer."""
    return zip(bodies, run_concurrently(len(bodies), lambda each: server.client.post(path, bodies[each])), strict=True)


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_ends_with_an_error(rubbish_server: LemonbusServer, path: str) -> None:
    bodies = [{**generations(kind, LONG)[path], "stream": True} for kind in EVENTS]
    for body, answer in answers(rubbish_server, path, bodies):
        assert b"error" in answer.body, (body, answer.body)
        assert not any(end in answer.body for end in ENDS), (body, answer.body)


@pytest.mark.parametrize("path", PATHS)
def test_a_whole_answer_is_an_error(rubbish_server: LemonbusServer, path: str) -> None:
    kinds = itertools.product(EVENTS, (LONG, BRIEF))
    bodies = [{**generations(kind, tokens)[path], "stream": False} for kind, tokens in kinds]
    for body, answer in answers(rubbish_server, path, bodies):
        assert answer.status >= 500, (body, answer.body)


@pytest.mark.parametrize("path", WHOLE)
def test_an_answer_without_a_stream_is_an_error(rubbish_server: LemonbusServer, path: str) -> None:
    bodies = [{name: value or kind for name, value in WHOLE[path].items()} for kind in EVENTS]
    for body, answer in answers(rubbish_server, path, bodies):
        assert answer.status >= 500, (body, answer.body)


def test_an_event_without_an_end_is_silence(rubbish_server: LemonbusServer) -> None:
    stream = rubbish_server.client.start_chat(CHAT, messages=[{"role": "user", "content": ENDLESS}], stream=True)
    stream.finish()
    assert stream.error["code"] == "backend_hung"
    assert stream.error["tokens_sent"] == 1
    rubbish_server.wait_loaded(CHAT)
