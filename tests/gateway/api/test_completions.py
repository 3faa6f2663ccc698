"""Completions and embeddings: which field of a wrong request is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient

TEXT = {"model": "m", "prompt": "a"}


@pytest.mark.parametrize(
    ("route", "body", "param"),
    [
        ("embeddings", {"model": "m"}, "input"),
        ("embeddings", {"model": "m", "input": {}}, "input"),
        ("embeddings", {"model": "m", "input": []}, "input"),
        ("embeddings", {"model": "m", "input": [1, "a"]}, "input"),
        ("embeddings", {"model": "m", "input": "a", "encoding_format": "hex"}, "encoding_format"),
        ("completions", {"model": "m"}, "prompt"),
        ("completions", {**TEXT, "stream": True, "logprobs": True}, "logprobs"),
        ("completions", {**TEXT, "stream": True, "echo": True}, "echo"),
        ("completions", {**TEXT, "max_tokens": 0}, "max_tokens"),
        ("completions", {**TEXT, "prompt": [[1] * 20_000] * 2, "echo": True, "logprobs": 1}, "prompt"),
        ("completions", {**TEXT, "prompt": ["a", ""], "n": 2}, "prompt"),
        ("completions", {**TEXT, "prompt": "", "n": 2}, "prompt"),
        ("completions", {**TEXT, "max_tokens": 1, "max_completion_tokens": 1}, "max_tokens"),
        ("chat/completions", {"model": "m", "messages": []}, "messages"),
    ],
)
def test_the_wrong_field_is_named_and_nothing_is_sent(
    ask: AppClient, route: str, body: dict[str, Any], param: str
) -> None:
    is_error(ask("POST", f"/v1/{route}", body), 400, "invalid_request", param)
    assert not ask.bus.sent
