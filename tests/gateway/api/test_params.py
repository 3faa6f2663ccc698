"""``params``: the route under all prefixes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from protocol.failures import Code, Failure
from protocol.messages.models import GetParams, ParamsReport, SetParams
from protocol.models.sampling import effective_params
from tests.gateway.app_client import AppClient

SET = {"temperature": 0.8, "top_p": 0.95, "max_length": 1000}


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_the_documents_example(ask: AppClient, prefix: str) -> None:
    ask.reports[SetParams] = ParamsReport(effective_params(SET), list(SET))
    assert ask("POST", f"{prefix}/params", SET).json == {
        "status": "success",
        "message": "Generation parameters set successfully",
        "params": {
            "temperature": 0.8,
            "top_p": 0.95,
            "top_k": 50,
            "min_length": 0,
            "max_length": 1000,
            "do_sample": True,
        },
        "set": ["temperature", "top_p", "max_length"],
    }
    assert [call.values for call in ask.asked(SetParams)] == [SET]


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_get_shows_the_values_in_force(ask: AppClient, prefix: str) -> None:
    ask.reports[GetParams] = ParamsReport(
        effective_params({"min_length": 2}), ["min_length"], {"llamacpp": ["min_length"]}
    )
    found = ask("GET", f"{prefix}/params").json
    assert (found["params"], found["set"]) == (effective_params({"min_length": 2}), ["min_length"])
    assert found["ignored"] == {"llamacpp": ["min_length"]}
    assert ask("HEAD", f"{prefix}/params").status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 3}, "temperature"),
        ({"top_k": 1.5}, "top_k"),
        ({"do_sample": 1}, "do_sample"),
        ({"top_k": 10**400}, "top_k"),
        ({"temperature": -(10**400)}, "temperature"),
        ({"top_k": 5, "heat": 1}, "heat"),
        (b"[]", None),
        (b"{", None),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_sent(ask: AppClient, body: Any, param: str | None) -> None:
    result = ask("POST", "/v1/params", body)
    assert (result.status_code, result.json["error"]["type"]) == (400, "invalid_request")
    assert result.json["status"] == "error"
    assert result.json["error"]["param"] == param
    assert not ask.bus.sent


def test_null_resets_a_value_and_an_empty_body_changes_nothing(ask: AppClient) -> None:
    ask.reports[SetParams] = ParamsReport(effective_params({}), [])
    ask("POST", "/v1/params", {"top_k": None})
    ask("POST", "/v1/params")
    assert [call.values for call in ask.asked(SetParams)] == [{"top_k": None}, {}]


def test_the_supervisors_refusal_reaches_the_client(ask: AppClient) -> None:
    ask.reports[SetParams] = Failure(Code.INVALID_REQUEST, "too long", param="min_length")
    assert ask("POST", "/v1/params", {"min_length": 5000}).json["error"]["param"] == "min_length"


def test_a_foreign_page_may_not_set_them(ask: AppClient) -> None:
    assert ask("POST", "/v1/params", SET, headers={"Origin": "http://evil.example"}).status_code == 403
    assert not ask.bus.sent
