"""How the configuration's set, drop and system_prompt change requests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.requests.request_rules import RequestRules
from workers.backends.requests.request_rules import ENDPOINTS, apply_request_rules

CHAT = "chat/completions"
USER = {"role": "user", "content": "Hi"}
SYSTEM = {"role": "system", "content": "Be brief."}


def applied(rules: RequestRules, body: dict[str, Any], endpoint: str = CHAT) -> Any:
    return msgspec.json.decode(apply_request_rules(rules, endpoint, msgspec.json.encode(body)))


@pytest.mark.parametrize(
    ("rules", "body", "expected"),
    [
        (RequestRules(drop=["top_k"]), {"top_k": 3, "seed": 1}, {"seed": 1}),
        (RequestRules(set={"temperature": 0}), {"temperature": 2}, {"temperature": 0}),
        (RequestRules(set={"a": {"b": [1, "x"]}}), {}, {"a": {"b": [1, "x"]}}),
        (RequestRules(set={"top_k": 1}, drop=["top_k"]), {"top_k": 3}, {"top_k": 1}),
        (RequestRules(drop=["max_tokens"]), {"max_completion_tokens": 3, "max_length": 2, "n_predict": 1}, {}),
        (RequestRules(set={"max_tokens": 5}), {"max_completion_tokens": 3}, {"max_tokens": 5}),
        (RequestRules(defaults={"top_p": 0.5}), {}, {"top_p": 0.5}),
        (RequestRules(defaults={"top_p": 0.5}), {"top_p": 0.9}, {"top_p": 0.9}),
        (RequestRules(defaults={"top_p": 0.5}), {"top_p": None}, {"top_p": 0.5}),
        (RequestRules(defaults={"top_p": 0.5}, drop=["top_p"]), {"top_p": 0.9}, {"top_p": 0.5}),
        (RequestRules(defaults={"max_tokens": 5}), {"max_completion_tokens": 3}, {"max_completion_tokens": 3}),
        (RequestRules(system_prompt="Be brief."), {"messages": [USER]}, {"messages": [SYSTEM, USER]}),
    ],
)
def test_rules(rules: RequestRules, body: dict[str, Any], expected: dict[str, Any]) -> None:
    assert applied(rules, body) == expected


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_chat_keeps_its_own_system_message(role: str) -> None:
    body = {"messages": [{"role": role, "content": "mine"}, USER]}
    assert applied(RequestRules(system_prompt="Be brief."), body) == body


@pytest.mark.parametrize("messages", [[], "Hi", [1], {}, None])
def test_malformed_messages_are_left_to_the_engine(messages: object) -> None:
    assert applied(RequestRules(system_prompt="x"), {"messages": messages}) == {"messages": messages}


@pytest.mark.parametrize("endpoint", sorted(ENDPOINTS))
def test_each_endpoint_with_json_gets_the_fields(endpoint: str) -> None:
    assert applied(RequestRules(set={"x": 1}), {"prompt": "a"}, endpoint) == {"prompt": "a", "x": 1}


@pytest.mark.parametrize("endpoint", ["tokenize", "slots", "audio/transcriptions", "images/edits"])
@pytest.mark.parametrize("body", [b"{}", b"--form", b""])
def test_other_endpoints_are_unchanged(endpoint: str, body: bytes) -> None:
    assert apply_request_rules(RequestRules({"x": 1}, ["y"], "z"), endpoint, body) is body


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b'{"a":' + b"[" * 5000])
def test_a_body_that_is_not_an_object_is_left_to_the_backend(body: bytes) -> None:
    assert apply_request_rules(RequestRules({"x": 1}), CHAT, body) is body


def test_without_rules_the_body_is_not_read() -> None:
    body = b'{"messages": []}'
    assert apply_request_rules(RequestRules(), CHAT, body) is body


def test_a_picture_keeps_the_seed_that_its_answer_names() -> None:
    rules = RequestRules({"seed": 1, "steps": 2}, ["cfg_scale"])
    assert applied(rules, {"seed": 5, "cfg_scale": 2}, "images/generations") == {"seed": 5, "steps": 2}


def test_a_system_prompt_is_for_chats_alone() -> None:
    rules = RequestRules(system_prompt="x")
    assert applied(rules, {"prompt": "a"}, "completions") == {"prompt": "a"}
    for endpoint in ("apply-template", "chat/completions/input_tokens"):
        assert len(applied(rules, {"messages": [USER]}, endpoint)["messages"]) == 2
