"""Counting the tokens of a response's prompt: the request to the engine, and its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.messages import work
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient

URL = "/v1/responses/input_tokens"
COUNT = "chat/completions/input_tokens"


@pytest.mark.parametrize("more", [{}, {"stream": True}])
def test_the_engine_counts_the_prompt_of_the_response(ask: AppClient, more: dict[str, Any]) -> None:
    ask.answers[COUNT] = {"input_tokens": 7}
    answer = ask("POST", URL, {"model": "m", "input": "hi", "instructions": "Be brief.", **more})
    assert (answer.status_code, answer.json) == (200, {"object": "response.input_tokens", "input_tokens": 7})
    (submitted,) = ask.asked(work.SubmitRequest)
    assert (submitted.endpoint, submitted.model, submitted.stream) == (COUNT, "m", False)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert json.loads(ask.bus.bodies[0]) == {"model": "m", "messages": messages}


def test_a_wrong_request_is_not_counted(ask: AppClient) -> None:
    is_error(ask("POST", URL, {"model": "m"}), 400, "invalid_request", "input")
    assert not ask.bus.sent


def test_an_answer_that_is_not_a_count_is_the_engines_mistake(ask: AppClient) -> None:
    ask.answers[COUNT] = {"tokens": 7}
    assert ask("POST", URL, {"model": "m", "input": "hi"}).json["error"]["code"] == "backend_error"


def test_compaction_is_refused_with_an_alternative(ask: AppClient) -> None:
    answer = ask("POST", "/v1/responses/compact", {"model": "m", "input": "hi"})
    is_error(answer, 501, "unsupported_operation")
    assert "truncation" in answer.json["error"]["message"]
