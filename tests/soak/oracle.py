"""Judges responses while processes are killed and stopped, from the response alone. Pure."""

from __future__ import annotations

import math
from typing import Any, Final

from protocol.failures import Code
from tests.support.clients.http_exchange import HttpExchange
from tests.support.models.tiny_models import CHAT_TEXT, TALE_TEXT

TEXTS: Final = {"extra.tiny-chat": CHAT_TEXT, "extra.tiny-tale": TALE_TEXT}
"""Models that always give the same text and then stop."""
ENDLESS: Final = "extra.tiny-loop"
"""A model that repeats its text until ``max_tokens``."""
CHATS: Final = (*TEXTS, ENDLESS)
EMBED: Final = "extra.tiny-embed"
RERANK: Final = "extra.tiny-rerank"

OF_NODES: Final = frozenset({Code.NODE_LOST, Code.NO_NODE, Code.SUPERVISOR_LOST, Code.DRAINING})
"""Failures of a server over several machines: the last two come from gateways on other machines, which were cut off."""
ALLOWED: Final = frozenset(
    {
        Code.BACKEND_DIED,
        Code.WORKER_GONE,
        Code.HUNG,
        Code.LOST,
        Code.RETURNED,
        Code.OVERLOADED,
        Code.STARTING,
        Code.LOAD_FAILED,
        Code.BACKING_OFF,
        Code.BREAKER_OPEN,
        Code.UNLOADED,
        *OF_NODES,
    }
)
"""Failures that the injected faults may explain; :mod:`tests.soak.causes` tells which of them did. Any other is a finding."""


def expected_text(model: str, tokens: int) -> str:
    """Return the text that a model must give; ``tokens`` counts only for the endless one."""
    if model != ENDLESS:
        return TEXTS[model]
    words = len(CHAT_TEXT)
    return CHAT_TEXT * (1 + tokens * 16 // words)


def check_chat(exchange: HttpExchange, model: str, tokens: int) -> str:
    """Return what is wrong with a chat response that was read to its end; empty if nothing is."""
    expected = expected_text(model, tokens)
    if exchange.status == 0:
        return ""  # The gateway process was killed before its first byte.
    if exchange.status != 200:
        return _check_refusal(exchange)
    if exchange.events or exchange.headers.get("content-type", "").startswith("text/event-stream"):
        return _check_stream(exchange, model, expected)
    if not exchange.complete:
        return ""  # The gateway process was killed, and the missing bytes tell so.
    return _check_whole_text(exchange.text, model, expected)


def _check_stream(exchange: HttpExchange, model: str, expected: str) -> str:
    text = exchange.text
    if exchange.done:
        if exchange.error:
            return f"a stream has both an error and [DONE]: {exchange.error}"
        return _check_whole_text(text, model, expected)
    if not expected.startswith(text):
        return f"a broken stream has another text: {text[-80:]!r}"
    error: Any = exchange.error
    if error and error.get("code") not in ALLOWED:
        return f"a stream was broken by {error}"
    if exchange.complete and not error:
        return "a stream ended without [DONE] and without an error"
    return ""


def _check_whole_text(text: str, model: str, expected: str) -> str:
    right = expected.startswith(text) and len(text) > 0 if model == ENDLESS else text == expected
    return "" if right else f"{model} gave {text[-80:]!r}"


def _check_refusal(exchange: HttpExchange) -> str:
    if not exchange.complete:
        return ""
    error = exchange.error
    if not isinstance(error, dict) or not error.get("request_id"):
        return f"an error without a request id: {exchange.status} {exchange.body[:200]!r}"
    if error.get("code") not in ALLOWED:
        return f"refused with {exchange.status} {error}"
    if exchange.status == 503 and not exchange.headers.get("retry-after") and error["code"] != Code.UNLOADED:
        return f"503 without Retry-After: {error}"
    return ""


def check_numbers(exchange: HttpExchange, key: str, first: dict[str, Any]) -> str:
    """Return what is wrong with embeddings or scores: every answer to one request must equal the first."""
    if exchange.status == 0 or not exchange.complete:
        return ""
    if exchange.status != 200:
        return _check_refusal(exchange)
    found = exchange.json().get("data") or exchange.json().get("results")
    if not _close(first.setdefault(key, found), found):
        return f"{key} gave other numbers than before"
    return ""


def _close(one: Any, other: Any) -> bool:
    """Whether two answers are equal except for rounding, which depends on what an engine computes at the same time."""
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-4)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[name], other[name]) for name in one)
    return bool(one == other)
