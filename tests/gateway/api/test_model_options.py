"""``models/{id}/options``: the routes, the path's name, and what is sent to the supervisor."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from protocol.failures import Code, Failure
from protocol.messages.model_details import ChangeModelOptions, ModelOptionsReport
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient

REPORT = ModelOptionsReport("M", "llamacpp", {"threads": 2}, {"threads": 2, "ctx_size": -1}, {"threads": 0}, -1)


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
@pytest.mark.parametrize("name", ["m", "owner/repo:Q4_0", "user.x"])
def test_they_are_read_and_erased_under_any_name(ask: AppClient, prefix: str, name: str) -> None:
    ask.reports[ChangeModelOptions] = REPORT
    expected = {
        "model_name": name,
        "recipe": "llamacpp",
        "saved": {"threads": 2},
        "effective": {"threads": 2, "ctx_size": -1, "model_name": name},
        "defaults": {"threads": 0, "model_name": name},
        "resolved_ctx_size": -1,
        "loaded_options": {},
        "reload_needed": False,
    }
    for method in ("GET", "DELETE"):
        assert ask(method, f"{prefix}/models/{name}/options").json == expected
    read, erased = ask.asked(ChangeModelOptions)
    assert (read.model, read.changes, read.erase) == (name, {}, False)
    assert (erased.model, erased.changes, erased.erase) == (name, {}, True)


def test_a_change_is_sent_with_null_and_automatic_values(ask: AppClient) -> None:
    ask.reports[ChangeModelOptions] = REPORT
    body = {"ctx_size": -1, "threads": None, "llamacpp_args": "", "model_name": "other", "dry_run": True}
    assert ask("POST", "/v1/models/m/options", body).status_code == 200
    assert ask("POST", "/v1/models/m/options").status_code == 200
    first, second = ask.asked(ChangeModelOptions)
    assert (first.model, first.dry_run) == ("m", True)
    assert first.changes == {"ctx_size": -1, "threads": None, "llamacpp_args": ""}
    assert (second.changes, second.dry_run, second.erase) == ({}, False, False)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"ctx_size": [1]}, "ctx_size"),
        ({"ctx_size": 2**64 - 1}, "ctx_size"),
        ({"dry_run": "yes"}, "dry_run"),
        (b"[]", None),
        (b"{", None),
    ],
)
def test_a_wrong_value_is_named(ask: AppClient, body: Any, param: str | None) -> None:
    result = ask("POST", "/v1/models/m/options", body)
    assert (result.status_code, result.json["error"]["param"]) == (400, param)
    assert not ask.bus.sent


def test_an_unknown_model_is_not_found(ask: AppClient) -> None:
    ask.reports[ChangeModelOptions] = Failure(Code.MODEL_NOT_FOUND, "no", model="m")
    is_error(ask("GET", "/v1/models/m/options"), 404, "not_found")


def test_a_foreign_page_may_not_read_or_change_them(ask: AppClient) -> None:
    for method in ("GET", "POST", "DELETE"):
        is_error(ask(method, "/v1/models/m/options", headers={"Origin": "http://evil.example"}), 403, "forbidden")
