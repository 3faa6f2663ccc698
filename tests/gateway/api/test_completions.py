"""Completions and embeddings: which field of a wrong request is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient

TEXT = {"model": "m", "prompt": "a"}
TALK = {"model": "m", "messages": [{"role": "user", "content": "functions, audio"}]}
TOOL = {"type": "function", "function": {"name": "f"}}


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
        ("completions", {**TEXT, "suffix": " end"}, "suffix"),
        ("completions", {**TEXT, "best_of": 2}, "best_of"),
        ("completions", {**TEXT, "best_of": 3, "n": 2}, "best_of"),
        ("chat/completions", {"model": "m", "messages": []}, "messages"),
        ("chat/completions", {**TALK, "functions": [{"name": "f", "parameters": {}}]}, "functions"),
        ("chat/completions", {**TALK, "function_call": "auto"}, "function_call"),
        ("chat/completions", {**TALK, "modalities": ["text", "audio"]}, "modalities"),
        ("chat/completions", {**TALK, "audio": {"voice": "alloy", "format": "wav"}}, "audio"),
        ("chat/completions", {**TALK, "web_search_options": {}}, "web_search_options"),
        ("chat/completions", {**TALK, "structured_outputs": {"regex": "(yes|no)"}}, "structured_outputs"),
        ("chat/completions", {**TALK, "guided_json": {"type": "object"}}, "guided_json"),
        ("chat/completions", {**TALK, "tools": [TOOL, {"type": "custom", "custom": {"name": "x"}}]}, "tools[1].type"),
        ("completions", {**TEXT, "guided_choice": ["yes", "no"]}, "guided_choice"),
        ("completions", {**TEXT, "regex": "[0-9]+"}, "regex"),
        ("chat/completions", {**TALK, "response_format": {"type": "json", "value": {}}}, "response_format.type"),
        ("chat/completions", {**TALK, "prediction": {"type": "content", "content": "a"}}, "prediction"),
    ],
)
def test_the_wrong_field_is_named_and_nothing_is_sent(
    ask: AppClient, route: str, body: dict[str, Any], param: str
) -> None:
    is_error(ask("POST", f"/v1/{route}", body), 400, "invalid_request", param)
    assert not ask.bus.sent


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("completions", {**TEXT, "best_of": 1}),
        ("completions", {**TEXT, "best_of": 2, "n": 2, "suffix": ""}),
        ("chat/completions", {**TALK, "modalities": ["text"], "functions": [], "function_call": "none"}),
        ("chat/completions", {**TALK, "audio": None, "web_search_options": None, "prediction": None}),
        ("chat/completions", {**TALK, "guided_json": None, "structured_outputs": {}, "regex": ""}),
        ("chat/completions", {**TALK, "response_format": {"type": "text"}}),
    ],
)
def test_an_unserved_field_that_asks_for_nothing_is_accepted(ask: AppClient, route: str, body: dict[str, Any]) -> None:
    ask.bus.answers[route] = {"choices": [{"text": "a", "index": 0}]}
    assert ask("POST", f"/v1/{route}", body).status_code == 200


def test_a_refusal_is_text_for_the_engine(ask: AppClient) -> None:
    ask.bus.answers["chat/completions"] = {"choices": []}
    content = [{"type": "refusal", "refusal": "No."}, {"type": "text", "text": '"refusal"'}]
    messages = [*TALK["messages"], {"role": "assistant", "content": content, "refusal": None}, *TALK["messages"]]
    assert ask("POST", "/v1/chat/completions", {"model": "m", "messages": messages}).status_code == 200
    sent = json.loads(ask.bus.bodies[0])["messages"][1]
    assert sent == {"role": "assistant", "content": [{"type": "text", "text": "No."}, content[1]]}
