"""Log probabilities of a token and of the most likely alternatives, as llama-server writes them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def token_logprobs(scores: Any, token: int, top: int, text_of: Callable[[int], str]) -> dict[str, Any]:
    """Return the entry of a token. ``scores`` are those of the whole vocabulary before sampling."""
    row = rows_of(scores)[-1]
    highest = row.max()
    logs = row - highest - np.log(np.exp(row - highest).sum())
    best: Any = np.argpartition(-logs, min(top, len(logs) - 1))[:top] if top else []
    ranked = sorted((int(each) for each in best), key=lambda each: -logs[each])
    return {
        **_token_entry(logs, token, text_of),
        "top_logprobs": [_token_entry(logs, each, text_of) for each in ranked],
    }


def rows_of(scores: Any) -> Any:
    """Return scores as a row for each preceding token."""
    return np.asarray(scores, dtype=np.float64).reshape(-1, scores.shape[-1])


def unscored(token: int, text_of: Callable[[int], str]) -> dict[str, Any]:
    """Return the entry of a token without a preceding one, which has no probability."""
    return {"id": token, "token": text_of(token), "bytes": list(text_of(token).encode()), "top_logprobs": []}


def _token_entry(logs: Any, token: int, text_of: Callable[[int], str]) -> dict[str, Any]:
    text = text_of(token)
    return {"id": token, "token": text, "bytes": list(text.encode()), "logprob": float(logs[token])}
