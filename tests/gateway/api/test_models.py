"""``models`` and ``models/{id}``: the documented requests and fields."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from gateway.api.common.dialect import VERSION_PREFIXES
from protocol.messages.models import GetModel, ListModels
from tests.gateway.api.error_bodies import is_error
from tests.gateway.api.supervisor_reports import ABSENT, CPU, UNKNOWN
from tests.gateway.app_client import AppClient

OLD = ("/v0", "/api/v0")


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_models_lists_downloaded_ones_in_openais_form(ask: AppClient, prefix: str) -> None:
    ask.reports[ListModels] = [CPU]
    assert ask("GET", f"{prefix}/models").json == {
        "object": "list",
        "data": [
            {
                "id": "Qwen2.5-0.5B-Instruct-CPU",
                "created": 1744173590,
                "created_at": "2025-04-09T04:39:50Z",
                "object": "model",
                "type": "model",
                "display_name": "Qwen2.5-0.5B-Instruct-CPU",
                "lifecycle": "active",
                "owned_by": "lemonade",
                "checkpoint": "amd/Qwen2.5-0.5B-cpu-onnx",
                "recipe": "oga-cpu",
                "device": "cpu",
                "dtype": "",
                "labels": ["hot", "cpu"],
                "recipe_options": {},
            }
        ],
        "has_more": False,
        "first_id": "Qwen2.5-0.5B-Instruct-CPU",
        "last_id": "Qwen2.5-0.5B-Instruct-CPU",
    }
    assert not ask.asked(ListModels)[0].show_all


def test_models_have_contexts_where_they_are_known(ask: AppClient) -> None:
    known = structs.replace(CPU, context_length=4096, max_context_window=32768)
    ask.reports[ListModels], ask.reports[GetModel] = [known, ABSENT], known
    first, second = ask("GET", "/v1/models").json["data"]
    assert (first["context_length"], first["max_context_window"]) == (4096, 32768)
    assert not second.keys() & {"context_length", "max_context_window"}
    one = ask("GET", f"/v1/models/{CPU.id}").json
    assert (one["context_length"], one["max_context_window"]) == (4096, 32768)


def test_models_have_the_options_that_are_saved_for_them(ask: AppClient) -> None:
    ask.reports[ListModels] = [structs.replace(CPU, saved_options={"ctx_size": 8192}), ABSENT]
    shown = ask("GET", "/v1/models").json["data"]
    assert [each["recipe_options"] for each in shown] == [{"ctx_size": 8192}, {}]


def test_show_all_adds_name_downloaded_and_size(ask: AppClient) -> None:
    ask.reports[ListModels] = [CPU, ABSENT]
    found = ask("GET", "/v1/models", params={"show_all": "true"}).json["data"]
    assert ask.asked(ListModels)[0].show_all
    assert [(each["name"], each["downloaded"], each["size"]) for each in found] == [
        (CPU.id, True, 0.0),
        (ABSENT.id, False, 1.5),
    ]
    assert all(each["name"] == each["id"] for each in found)


@pytest.mark.parametrize(
    ("given", "expected"), [("1", True), ("True", True), ("", True), ("false", False), ("0", False)]
)
def test_values_of_show_all(ask: AppClient, given: str, expected: bool) -> None:
    ask.reports[ListModels] = []
    assert ask("GET", f"/v1/models?show_all={given}").status_code == 200
    assert ask.asked(ListModels)[0].show_all == expected


def test_another_value_of_show_all_is_refused(ask: AppClient) -> None:
    is_error(ask("GET", "/v1/models?show_all=maybe"), 400, "invalid_request", "show_all")


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_a_model_may_have_slashes_in_its_id(ask: AppClient, prefix: str) -> None:
    ask.reports[GetModel] = CPU
    for path in ("owner/repo:Q4_K_M", "owner%2Frepo:Q4_K_M"):
        assert ask("GET", f"{prefix}/models/{path}").json["id"] == CPU.id
    assert {call.name for call in ask.asked(GetModel)} == {"owner/repo:Q4_K_M"}


def test_an_unknown_model_is_404_with_the_documented_message(ask: AppClient) -> None:
    ask.reports[GetModel] = UNKNOWN
    body = is_error(ask("GET", "/api/v1/models/No-Such-Model"), 404, "not_found")
    assert body["error"]["message"] == "Model No-Such-Model has not been found"
    assert body["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_the_preview_also_lists_with_post(ask: AppClient, prefix: str) -> None:
    ask.reports[ListModels] = [CPU]
    result = ask("POST", f"{prefix}/models", {"cache_dir": str(Path(ask.session.settings.cache_dir) / "models")})
    if prefix in OLD:
        assert result.json["data"][0]["checkpoint"] == CPU.checkpoint
    else:
        is_error(result, 405, "invalid_request")
        assert "GET" in result.headers["Allow"]


def test_cache_dir_must_be_a_path(ask: AppClient) -> None:
    is_error(ask("GET", "/v1/models?cache_dir=%00"), 400, "invalid_request", "cache_dir")
    is_error(ask("GET", "/v1/models", params={"cache_dir": "a" * 2000}), 400, "invalid_request", "cache_dir")


@pytest.mark.parametrize("directory", ["/etc", "/", "cache/../../elsewhere", "~root"])
def test_cache_dir_must_be_a_directory_of_this_server(ask: AppClient, directory: str) -> None:
    is_error(ask("GET", "/v0/models", params={"cache_dir": directory}), 400, "invalid_request", "cache_dir")
    is_error(ask("POST", "/v0/load", {"model": "m", "cache_dir": directory}), 400, "invalid_request", "cache_dir")
    assert not ask.bus.sent


@pytest.mark.parametrize(
    ("query", "ids", "has_more"),
    [
        ("", "abcd", False),
        ("limit=2", "ab", True),
        ("limit=2&after_id=b", "cd", False),
        ("after_id=d", "", False),
        ("limit=2&before_id=d", "bc", True),
        ("limit=9&before_id=b", "a", False),
    ],
)
def test_pages_of_the_list(ask: AppClient, query: str, ids: str, has_more: bool) -> None:
    ask.reports[ListModels] = [msgspec.structs.replace(CPU, id=each) for each in "abcd"]
    found = ask("GET", f"/v1/models?{query}").json
    assert "".join(each["id"] for each in found["data"]) == ids
    ends = (ids[0], ids[-1]) if ids else (None, None)
    assert (found["has_more"], found["first_id"], found["last_id"]) == (has_more, *ends)


NAMED = structs.replace(CPU, id="b", aliases=["b:1b", "mine"], given_names=["gpt-4o", "mine"])
"""The catalogue also has one of the names that it was given."""


def test_a_model_is_listed_under_each_name_that_it_was_given(ask: AppClient) -> None:
    ask.reports[ListModels] = [structs.replace(CPU, id="a"), NAMED]
    found = ask("GET", "/v1/models").json
    assert [(each["id"], each["display_name"], each.get("root")) for each in found["data"]] == [
        ("a", "a", None),
        ("b", "b", None),
        ("gpt-4o", "gpt-4o", "b"),
        ("mine", "mine", "b"),
    ]
    assert found["last_id"] == "mine"
    page = ask("GET", "/v1/models?limit=1&after_id=b").json
    assert ([each["id"] for each in page["data"]], page["has_more"]) == (["gpt-4o"], True)


def test_a_model_that_is_loaded_is_supported_however_it_would_be_judged_now(ask: AppClient) -> None:
    loaded = structs.replace(CPU, loaded=True, unsupported_reason="it needs more memory than there is")
    ask.reports[ListModels] = [loaded]
    (only,) = ask("GET", "/v1/models?show_all=true").json["data"]
    assert (only["loaded"], only["supported"], only["unsupported_reason"]) == (True, True, "")


def test_all_models_are_listed_once_with_their_names(ask: AppClient) -> None:
    ask.reports[ListModels] = [NAMED]
    (only,) = ask("GET", "/v1/models?show_all=true").json["data"]
    assert (only["id"], only["aliases"]) == ("b", ["gpt-4o", "mine", "b:1b"])


@pytest.mark.parametrize(("asked", "shown", "root"), [("mine", "mine", "b"), ("b", "b", None), ("b:1b", "b", None)])
def test_one_model_is_shown_under_the_name_that_it_was_given(
    ask: AppClient, asked: str, shown: str, root: str | None
) -> None:
    ask.reports[GetModel] = NAMED
    one = ask("GET", f"/v1/models/{asked}").json
    assert (one["id"], one.get("root"), one["aliases"]) == (shown, root, ["gpt-4o", "mine", "b:1b"])


@pytest.mark.parametrize(
    ("query", "field"),
    [("limit=0", "limit"), ("limit=x", "limit"), ("limit=1001", "limit"), ("after_id=z", "after_id")],
)
def test_pages_that_are_refused(ask: AppClient, query: str, field: str) -> None:
    ask.reports[ListModels] = [CPU]
    is_error(ask("GET", f"/v1/models?{query}"), 400, "invalid_request", field)
