"""Mullama's routes for models: exact answers, exact messages to the supervisor, and every documented error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.failures import Code, Failure
from protocol.messages import model_files
from protocol.messages.health import GetHealth
from protocol.messages.model_details import DescribeModels
from protocol.messages.models import Loaded, LoadModel, UnloadModel
from tests.gateway.api.described_models import LLAMA, THINKER, VECTORS
from tests.gateway.api.error_bodies import is_api_error as is_error
from tests.gateway.api.supervisor_reports import HEALTH
from tests.gateway.app_client import AppClient

NAME = "llama3.2:1b"
UNKNOWN = Failure(Code.MODEL_NOT_FOUND, "Model 'unknown-model' not found", model="unknown-model", param="model")
LISTED = {
    "alias": NAME,
    "path": "/secret/Llama-3.2-1B-Instruct-Q4_K_M.gguf",
    "parameters": 1_235_814_432,
    "context_size": 4096,
    "gpu_layers": 0,
    "is_default": True,
    "active_requests": 0,
    "name": "llama3.2-1b",
    "loaded": False,
    "size_bytes": 807_694_464,
}


def test_the_list_has_every_downloaded_model(ask: AppClient) -> None:
    ask.reports[DescribeModels] = [LLAMA, THINKER, VECTORS]
    models = ask("GET", "/api/models").json["models"]
    assert [model["alias"] for model in models] == ["Qwen3-VL-4B-GGUF", NAME, "nomic-embed"], "loaded ones first"
    assert models[1] == LISTED
    assert (models[0]["gpu_layers"], models[0]["active_requests"], models[0]["parameters"]) == (35, 2, 4 * 10**9)
    assert ask.asked(DescribeModels) == [DescribeModels(1)]


def test_one_model_is_shown_with_what_it_can_do(ask: AppClient) -> None:
    ask.reports[DescribeModels] = [LLAMA]
    assert ask("GET", f"/api/models/{NAME}").json == {
        **LISTED,
        "architecture": "LlamaForCausalLM",
        "vocab_size": 128_256,
        "capabilities": {"vision": False, "tools": True, "thinking": False, "json": True},
    }
    assert ask.asked(DescribeModels)[0].model == NAME


@pytest.mark.parametrize(
    ("details", "able"), [(THINKER, ["vision", "tools", "thinking"]), (VECTORS, []), (LLAMA, ["tools", "json"])]
)
def test_capabilities(ask: AppClient, details: Any, able: list[str]) -> None:
    ask.reports[DescribeModels] = [details]
    capabilities = ask("GET", "/api/models/x").json["capabilities"]
    assert [word for word, true in capabilities.items() if true] == able


def test_a_checkpoint_is_a_name_too(ask: AppClient) -> None:
    ask.reports[DescribeModels] = [LLAMA]
    assert ask("GET", "/api/models/bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M").status_code == 200
    ask.reports[UnloadModel] = ["llama3.2-1b"]
    assert ask("POST", "/api/models/owner/repo:Q4/unload").json == {"status": "unloaded", "alias": "owner/repo:Q4"}
    assert ask.asked(UnloadModel)[0].model == "owner/repo:Q4"


def test_paths_are_for_administrators(ask: AppClient) -> None:
    ask.reports[DescribeModels] = [LLAMA]
    ask.reports[GetHealth] = msgspec.structs.replace(HEALTH, ipc_endpoint="ipc:///secret/bus")
    foreign = {"remote_addr": "10.0.0.7"}
    assert ask("GET", "/api/models", **foreign).json["models"][0]["path"] == ""
    assert ask("GET", "/api/models/x", **foreign).json["path"] == ""
    assert ask("GET", "/api/system/status", **foreign).json["ipc_endpoint"] == ""
    assert ask("GET", "/api/system/status").json["ipc_endpoint"] == "ipc:///secret/bus"


def test_a_key_for_inference_reads_and_changes_nothing(tmp_path: Path) -> None:
    ask = AppClient(tmp_path, api_key="use", admin_api_key="change")
    ask.reports[DescribeModels] = [LLAMA]
    ask.reports[UnloadModel] = ["llama3.2-1b"]
    use, change = ({"headers": {"Authorization": f"Bearer {key}"}} for key in ("use", "change"))
    assert ask("GET", "/api/models").status_code == 401
    assert ask("GET", "/api/models", **use).json["models"][0]["path"] == ""
    assert ask("GET", "/api/models", **change).json["models"][0]["path"] == LLAMA.path
    for method, path, body in (
        ("POST", "/api/models/load", {"alias": "a"}),
        ("POST", "/api/models/pull", {"name": "a"}),
        ("POST", f"/api/models/{NAME}/unload", None),
        ("DELETE", f"/api/models/{NAME}", None),
        ("POST", "/api/defaults/llama3.2-1b/use", None),
        ("POST", "/api/pull", {"model": "a"}),
        ("POST", "/api/copy", {"source": "a", "destination": "b"}),
        ("DELETE", "/api/delete", {"model": "a"}),
    ):
        is_error(ask(method, path, body, **use), 403, "forbidden")
    assert {type(message) for message in ask.bus.sent} == {DescribeModels}
    assert ask("POST", f"/api/models/{NAME}/unload", **change).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/api/models/unknown-model", DescribeModels),
        ("POST", "/api/models/unknown-model/unload", UnloadModel),
        ("DELETE", "/api/models/unknown-model", model_files.DeleteModel),
    ],
)
def test_an_unknown_model(ask: AppClient, method: str, path: str, message: type) -> None:
    ask.reports[message] = UNKNOWN
    result = ask(method, path)
    is_error(result, 404, "not_found", "model_not_found")
    assert result.json["error"]["message"] == "Model 'unknown-model' not found"


def test_unloading_what_is_not_loaded_is_a_conflict(ask: AppClient) -> None:
    ask.reports[UnloadModel] = Failure(Code.NOT_LOADED, "Model not loaded: llama3.2-1b", model="llama3.2-1b")
    is_error(ask("POST", f"/api/models/{NAME}/unload"), 409, "conflict")


def test_a_model_is_deleted(ask: AppClient) -> None:
    ask.reports[model_files.DeleteModel] = model_files.Deleted("llama3.2-1b", 1, ["user.x"])
    answer = {"status": "deleted", "alias": NAME, "files_removed": 1, "kept_for": ["user.x"]}
    assert ask("DELETE", f"/api/models/{NAME}").json == answer
    assert not ask.asked(model_files.DeleteModel)[0].name_only


@pytest.mark.parametrize(
    ("body", "call"),
    [
        (
            {"alias": "my-model", "path": "/opt/models/custom.gguf", "gpu_layers": 35, "context_size": 8192},
            {
                "model": "my-model",
                "path": "/opt/models/custom.gguf",
                "options": {"ctx_size": 8192, "gpu_layers": 35},
            },
        ),
        ({"alias": NAME, "set_default": True}, {"model": NAME, "set_default": True}),
        ({"alias": NAME, "gpu_layers": None, "mmproj": None}, {"model": NAME}),
        (
            {"alias": "a", "path": "/m.gguf", "mmproj": "/p.gguf", "set_default": False},
            {"model": "a", "path": "/m.gguf", "mmproj": "/p.gguf"},
        ),
    ],
)
def test_a_load_becomes_one_message(ask: AppClient, body: dict[str, Any], call: dict[str, Any]) -> None:
    ask.reports[LoadModel] = Loaded("llama3.2-1b", "c", "llamacpp")
    ask.reports[DescribeModels] = [msgspec.structs.replace(LLAMA, context=8192, gpu_layers=35)]
    assert ask("POST", "/api/models/load", body).json == {
        "status": "loaded",
        "alias": body["alias"],
        "parameters": 1_235_814_432,
        "context_size": 8192,
        "gpu_layers": 35,
        "is_default": True,
    }
    assert ask.asked(LoadModel) == [LoadModel(1, **call, unless_loaded=True)]
    assert ask.asked(DescribeModels)[0].model == "llama3.2-1b"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("load", {"path": "/opt/models/custom.gguf"}, "alias"),
        ("load", {"alias": ""}, "alias"),
        ("load", {"alias": 5}, "alias"),
        ("load", {"alias": "a", "gpu_layers": "all"}, "gpu_layers"),
        ("load", {"alias": "a", "gpu_layers": -1}, "gpu_layers"),
        ("load", {"alias": "a", "context_size": 0}, "context_size"),
        ("load", {"alias": "a", "context_size": 4096.5}, "context_size"),
        ("load", {"alias": "a", "mmproj": "/p.gguf"}, "mmproj"),
        ("load", {"alias": "a", "set_default": "yes"}, "set_default"),
        ("pull", {}, "name"),
        ("pull", {"name": ""}, "name"),
        ("pull", {"name": NAME, "stream": "yes"}, "stream"),
        ("pull", b'{"name": ', None),
        ("pull", [], None),
    ],
)
def test_a_wrong_field_is_named(ask: AppClient, path: str, body: Any, param: str | None) -> None:
    result = ask("POST", f"/api/models/{path}", body)
    code = "invalid_json" if isinstance(body, bytes) else "invalid_request"
    is_error(result, 400, "invalid_request", code, param)
    assert not ask.bus.sent


def test_an_option_that_the_recipe_has_not_is_named_as_it_was_sent(ask: AppClient) -> None:
    ask.reports[LoadModel] = Failure(
        Code.INVALID_REQUEST, "ctx_size is not an option of recipe whispercpp", param="ctx_size"
    )
    result = ask("POST", "/api/models/load", {"alias": "a", "context_size": 1})
    is_error(result, 400, "invalid_request", "invalid_request", "context_size")
    assert result.json["error"]["message"] == "context_size is not an option of recipe whispercpp"


def test_a_loaded_model_is_a_conflict(ask: AppClient) -> None:
    ask.reports[LoadModel] = Failure(Code.CONFLICT, "Model 'a' is loaded already", model="a")
    is_error(ask("POST", "/api/models/load", {"alias": "a"}), 409, "conflict")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", f"/api/models/{NAME}/unload", "POST"),
        ("POST", f"/api/models/{NAME}", "DELETE"),
        ("GET", "/api/models/pull", "POST"),
        ("DELETE", "/api/models/load", "POST"),
        ("POST", "/api/models", "GET"),
        ("GET", "/api/defaults/x/use", "POST"),
        ("POST", "/status", "GET"),
    ],
)
def test_a_wrong_method_names_the_right_ones(ask: AppClient, method: str, path: str, allowed: str) -> None:
    result = ask(method, path)
    assert result.status_code == 405
    assert allowed in result.headers["Allow"]
    assert not ask.bus.sent


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/models/load"),
        ("POST", "/api/models/pull"),
        ("POST", f"/api/models/{NAME}/unload"),
        ("DELETE", f"/api/models/{NAME}"),
        ("POST", "/api/defaults/llama3.2-1b/use"),
        ("POST", "/api/pull"),
        ("POST", "/api/copy"),
        ("DELETE", "/api/delete"),
    ],
)
def test_a_foreign_page_may_not_change_the_server(ask: AppClient, method: str, path: str) -> None:
    body = {"alias": "a", "name": "a", "source": "a", "destination": "b"}
    result = ask(method, path, body, headers={"Origin": "http://evil.example"})
    is_error(result, 403, "forbidden")
    assert not ask.bus.sent
