"""load and unload: the field names of all documents, and wrong requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from protocol.failures import Code, Failure
from protocol.messages.models import LoadModel, UnloadModel
from protocol.times import NEVER_UNLOADED
from tests.gateway.api.error_bodies import is_error
from tests.gateway.api.supervisor_reports import LOADED, UNKNOWN
from tests.gateway.app_client import AppClient

OLD = ("/v0", "/api/v0")


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
@pytest.mark.parametrize(
    ("body", "call"),
    [
        ({"model_name": "m"}, LoadModel(0, "m")),
        ({"model": "m"}, LoadModel(0, "m")),
        ({"model": "m", "model_name": "m"}, LoadModel(0, "m")),
        (
            {"model": "owner/repo", "device": "Hybrid", "dtype": "int4", "recipe": "oga-cpu"},
            LoadModel(0, "owner/repo", device="hybrid", recipe="oga-cpu"),
        ),
        (
            {"model_name": "m", "ctx_size": 8192, "llamacpp_backend": "cpu", "llamacpp_args": "--no-mmap"},
            LoadModel(0, "m", {"ctx_size": 8192, "llamacpp_backend": "cpu", "llamacpp_args": "--no-mmap"}),
        ),
        (
            {"model_name": "m", "cfg_scale": 1.5, "steps": None, "save_options": True, "pinned": False},
            LoadModel(0, "m", {"cfg_scale": 1.5, "steps": None}, save_options=True, pinned=False),
        ),
        ({"model_name": "m", "ttl": 600, "pinned": True}, LoadModel(0, "m", pinned=True, ttl=600.0)),
        (
            {"model_name": "m", "ctx_size": -1, "llamacpp_args": "", "cfg_scale": -1.0, "gpu_layers": 0},
            LoadModel(0, "m", {"ctx_size": -1, "cfg_scale": -1.0, "gpu_layers": 0}),
        ),
        ({"model_name": "m", "ctx_size": "auto"}, LoadModel(0, "m", {"ctx_size": "auto"})),
        ({"model_name": "m", "merge_args": True}, LoadModel(0, "m", merge_args=True)),
        ({"model_name": "m", "merge_args": False}, LoadModel(0, "m", merge_args=False)),
        ({"model_name": "m", "ttl": 0}, LoadModel(0, "m", ttl=NEVER_UNLOADED)),
        ({"model_name": "m", "ttl": None}, LoadModel(0, "m")),
    ],
)
def test_load_takes_the_names_and_options_of_all_documents(
    ask: AppClient, prefix: str, body: dict[str, Any], call: LoadModel
) -> None:
    ask.reports[LoadModel] = LOADED
    result = ask("POST", f"{prefix}/load", body)
    assert result.json == {
        "status": "success",
        "message": f"Loaded model: {call.model}",
        "model_name": "Qwen3-0.6B-GGUF",
        "model": "Qwen3-0.6B-GGUF",
        "checkpoint": "unsloth/Qwen3-0.6B-GGUF:Q4_0",
        "recipe": "llamacpp",
    }
    (sent,) = ask.asked(LoadModel)
    assert msgspec.structs.replace(sent, number=0) == call


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"ctx_size": 8192}, "model_name"),
        ({}, "model_name"),
        ({"model_name": ""}, "model_name"),
        ({"model_name": 5}, "model_name"),
        ({"model": ["m"]}, "model"),
        ({"model_name": "a", "model": "b"}, "model_name"),
        ({"model_name": "a\0b"}, "model_name"),
        ({"model_name": "a" * 5000}, "model_name"),
        ({"model": "m", "device": "toaster"}, "device"),
        ({"model": "m", "dtype": "int3"}, "dtype"),
        ({"model": "m", "save_options": "yes"}, "save_options"),
        ({"model": "m", "pinned": 1}, "pinned"),
        ({"model": "m", "ctx_size": {}}, "ctx_size"),
        ({"model": "m", "ttl": -1}, "ttl"),
        ({"model": "m", "ttl": "5m"}, "ttl"),
        ({"model": "m", "ttl": True}, "ttl"),
        ({"model": "m", "ttl": 1e9}, "ttl"),
        ({"model": "m", "ctx_size": [1]}, "ctx_size"),
        ({"model": "m", "ctx_size": 2**63}, "ctx_size"),
        ({"model": "m", "llamacpp_args": {"-m": 1}}, "llamacpp_args"),
    ],
)
def test_load_says_which_field_is_wrong(ask: AppClient, body: dict[str, Any], param: str) -> None:
    is_error(ask("POST", "/v1/load", body), 400, "invalid_request", param)
    assert not ask.bus.sent


def test_the_supervisors_error_about_an_option_reaches_the_client(ask: AppClient) -> None:
    ask.reports[LoadModel] = Failure(Code.INVALID_REQUEST, "--port is ours to set", param="llamacpp_args")
    body = is_error(ask("POST", "/v1/load", {"model": "m", "llamacpp_args": "--port 1"}), 400, "invalid_request")
    assert "--port" in body["message"]
    ask.reports[LoadModel] = UNKNOWN
    assert is_error(ask("POST", "/v1/load", {"model": "x"}), 404, "not_found")["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_only_the_preview_acts_on_get_and_none_on_head(ask: AppClient, prefix: str) -> None:
    ask.reports.update({LoadModel: LOADED, UnloadModel: ["m"]})
    results = [ask("GET", f"{prefix}/load", {"model": "m"}), ask("GET", f"{prefix}/unload")]
    if prefix in OLD:
        assert [result.status_code for result in results] == [200, 200]
        assert ask("GET", f"{prefix}/load?model=m").status_code == 200
        assert [call.model for call in ask.asked(LoadModel)] == ["m", "m"]
        assert ask("GET", f"{prefix}/unload?model_name=m").status_code == 200
        assert [call.model for call in ask.asked(UnloadModel)] == ["", "m"]
    else:
        for result in results:
            is_error(result, 405, "invalid_request")
    before = len(ask.bus.sent)
    for route in ("load", "unload"):
        assert ask("HEAD", f"{prefix}/{route}?model=m").status_code == 405
    assert len(ask.bus.sent) == before


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
@pytest.mark.parametrize(
    ("body", "name"), [(None, ""), ({}, ""), ({"model_name": None}, ""), ({"model_name": "m"}, "m")]
)
def test_unload_takes_one_model_or_all(ask: AppClient, prefix: str, body: Any, name: str) -> None:
    ask.reports[UnloadModel] = ["m"]
    result = ask("POST", f"{prefix}/unload", body)
    assert result.json | {"status": "success", "message": "Model unloaded successfully"} == result.json
    assert [call.model for call in ask.asked(UnloadModel)] == [name]


@pytest.mark.parametrize("code", [Code.NOT_LOADED, Code.MODEL_NOT_FOUND])
def test_unloading_a_model_that_is_not_loaded_is_404(ask: AppClient, code: Code) -> None:
    ask.reports[UnloadModel] = Failure(code, "whatever the supervisor calls it")
    body = is_error(ask("POST", "/v1/unload", {"model_name": "Qwen3-0.6B-GGUF"}), 404, "not_found")
    assert body["message"] == "Model not found: Qwen3-0.6B-GGUF"
    assert body["error"]["code"] == "model_not_found"


DEAD = Failure(Code.LOAD_FAILED, "the engine exited with code 127", model="m", detail="libgomp.so.1: cannot open")


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({}, True),
        ({"Origin": "http://localhost:3000"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Host": "rebound.example"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_an_engines_output_is_for_administrators(ask: AppClient, headers: dict[str, str], shown: bool) -> None:
    ask.answers["chat/completions"] = DEAD
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    error = is_error(ask("POST", "/v1/chat/completions", body, headers=headers), 503, "model_error")["error"]
    assert error.get("detail") == ("libgomp.so.1: cannot open" if shown else None)


def test_a_remote_client_without_a_key_is_not_an_administrator(ask: AppClient) -> None:
    ask.reports[LoadModel] = DEAD
    refused = ask("POST", "/v1/load", {"model": "m"}, remote_addr="192.0.2.7")
    assert "detail" not in is_error(refused, 503, "model_error")["error"]


def test_the_key_makes_an_administrator(tmp_path: Path) -> None:
    ask = AppClient(tmp_path, api_key="k")
    ask.reports[LoadModel] = DEAD
    refused = ask("POST", "/v1/load", {"model": "m"}, headers={"x-api-key": "k"}, remote_addr="192.0.2.7")
    assert is_error(refused, 503, "model_error")["error"]["detail"] == DEAD.detail


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'{"model_name": }',
        b"\xff",
        b'{"model_name": ""}',
        b'{"model": 5}',
        b'{"modelname": "m"}',
        b'{"model_name": "a", "model": "b"}',
    ],
)
def test_a_malformed_unload_unloads_nothing(ask: AppClient, body: bytes) -> None:
    is_error(ask("POST", "/v1/unload", body), 400, "invalid_request")
    assert not ask.bus.sent


def test_a_temporary_refusal_has_retry_after(ask: AppClient) -> None:
    ask.reports[LoadModel] = Failure(Code.BACKING_OFF, "it failed three times", model="m", retry_after=7.2)
    result = ask("POST", "/v1/load", {"model": "m"})
    is_error(result, 503, "model_error")
    assert result.headers["Retry-After"] == "8"
