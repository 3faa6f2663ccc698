"""The preview, api/v0: its field names, its methods and its answers, with a checkpoint that is not registered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compatibility.hub_server import ONNX, UNREGISTERED, HubServer
from tests.support.clients.http_exchange import HttpExchange
from tests.support.fakes.hub import Hub
from tests.support.models.genai_models import GENAI_TEXT
from tests.support.server import LemonbusServer

PREFIXES = pytest.mark.parametrize("prefix", ["/api/v0", "/v0"])
METHODS = pytest.mark.parametrize(("prefix", "method"), [("/api/v0", "POST"), ("/api/v0", "GET"), ("/v0", "GET")])
LOADED = {"status": "success", "model_name": UNREGISTERED, "checkpoint": UNREGISTERED, "recipe": "llamacpp"}


@pytest.fixture(scope="module")
def server(module_hub_server: HubServer) -> LemonbusServer:
    return module_hub_server.server


@pytest.fixture
def loaded(server: LemonbusServer) -> LemonbusServer:
    """The server with the checkpoint loaded, as the preview loads it."""
    assert load(server, {"model": UNREGISTERED}).status == 200
    return server


def load(server: LemonbusServer, body: dict[str, Any], prefix: str = "/api/v0", method: str = "POST") -> HttpExchange:
    return server.client.start(method, f"{prefix}/load", body).finish()


@METHODS
def test_load_a_checkpoint(server: LemonbusServer, prefix: str, method: str) -> None:
    server.client.post("/v1/unload", {})
    answer = load(server, {"model": UNREGISTERED, "cache_dir": server.settings.cache_dir}, prefix, method)
    assert answer.status == 200, answer
    assert answer.json().items() >= LOADED.items()
    assert "message" in answer.json()
    health = server.client.get(f"{prefix}/health").json()
    assert (health["status"], health["model_loaded"]) == ("ok", UNREGISTERED)
    assert health["checkpoint_loaded"] == UNREGISTERED


@pytest.mark.parametrize("device", ["hybrid", "cpu"])
def test_load_with_device_and_dtype(server: LemonbusServer, device: str) -> None:
    assert load(server, {"model": UNREGISTERED, "device": device, "dtype": "int4"}).status == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"device": "cpu"}, "model_name"),
        ({"model": UNREGISTERED, "device": "toaster"}, "device"),
        ({"model": UNREGISTERED, "device": "npu"}, "device"),
        ({"model": UNREGISTERED, "dtype": "int3"}, "dtype"),
        ({"model": UNREGISTERED, "cache_dir": "/etc"}, "cache_dir"),
        ({"model": UNREGISTERED, "model_name": "another"}, "model_name"),
    ],
)
def test_load_error(server: LemonbusServer, body: dict[str, Any], param: str) -> None:
    answer = load(server, body)
    assert (answer.status, answer.json()["status"]) == (400, "error")
    assert (answer.error["type"], answer.error["param"]) == ("invalid_request", param)


@pytest.mark.parametrize(("prefix", "device"), [("/v0", {}), ("/api/v0", {"device": "hybrid", "dtype": "int4"})])
def test_an_onnx_checkpoint_means_its_recipe(server: LemonbusServer, prefix: str, device: dict[str, str]) -> None:
    answer = load(server, {"model": ONNX, **device}, prefix)
    assert answer.status == 200, answer
    assert answer.json().items() >= {"status": "success", "checkpoint": ONNX, "recipe": "oga-hybrid"}.items()
    health = server.client.get(f"{prefix}/health").json()
    assert (health["model_loaded"], health["checkpoint_loaded"]) == (ONNX, ONNX)
    (shown,) = [each for each in health["all_models_loaded"] if each["model_name"] == ONNX]
    assert shown["device"] == "cpu", "there is no NPU here"
    body = {"model": ONNX, "prompt": "the meaning of life is", "max_length": 3, "do_sample": False}
    assert server.client.post(f"{prefix}/completions", body).json()["text"] == GENAI_TEXT[: len(" One folder full")]
    (entry,) = [each for each in server.client.get(f"{prefix}/models").json()["data"] if each["checkpoint"] == ONNX]
    assert (entry["device"], entry["dtype"]) == ("cpu", "int4"), "as health says"


def test_an_onnx_checkpoint_on_the_processor(server: LemonbusServer, session_hub: Hub) -> None:
    session_hub.repositories["somebody/Other-onnx"] = session_hub.repositories[ONNX]
    answer = load(server, {"model": "somebody/Other-onnx", "device": "cpu"})
    assert (answer.status, answer.json()["recipe"]) == (200, "oga-cpu"), answer


@METHODS
def test_unload_as_the_heading_and_as_the_example_say(loaded: LemonbusServer, prefix: str, method: str) -> None:
    answer = loaded.client.start(method, f"{prefix}/unload").finish()
    assert answer.status == 200
    assert answer.json().items() >= {"status": "success", "message": "Model unloaded successfully"}.items()
    assert loaded.health()["all_models_loaded"] == []


@pytest.mark.parametrize("path", ["/v1/load", "/api/v1/unload"])
def test_get_changes_nothing_on_other_paths(loaded: LemonbusServer, path: str) -> None:
    answer = loaded.client.get(path)
    assert answer.status == 405
    assert "POST" in answer.headers["allow"]
    assert loaded.health()["model_loaded"] == UNREGISTERED


@PREFIXES
def test_completions_have_text_on_top(loaded: LemonbusServer, prefix: str) -> None:
    body = {"model": UNREGISTERED, "prompt": "the meaning of life is", "max_tokens": 8}
    answer = loaded.client.post(f"{prefix}/completions", body)
    assert answer.status == 200
    assert isinstance(answer.json()["text"], str)
    assert answer.json()["text"] == answer.json()["choices"][0]["text"]


def test_completions_of_the_default_model(loaded: LemonbusServer) -> None:
    answer = loaded.client.post("/api/v0/completions", {"prompt": "the meaning of life is", "max_tokens": 8})
    assert (answer.status, answer.json()["model"]) == (200, UNREGISTERED)
    assert answer.json()["text"]


def test_completions_with_load_and_params_fields(loaded: LemonbusServer) -> None:
    fields = {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "min_length": 0, "max_length": 8, "do_sample": False}
    body = {"model": UNREGISTERED, "prompt": "the meaning of life is", "device": "cpu", "dtype": "int4", **fields}
    answers = [loaded.client.post("/api/v0/completions", body) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert {answer.json()["usage"]["completion_tokens"] for answer in answers} == {8}
    assert len({answer.json()["text"] for answer in answers}) == 1, "greedy"


@pytest.mark.parametrize("field", ["max_length", "min_length", "do_sample"])
def test_completions_with_a_wrong_params_field(loaded: LemonbusServer, field: str) -> None:
    answer = loaded.client.post("/api/v0/completions", {"model": UNREGISTERED, "prompt": "x", field: "much"})
    assert (answer.status, answer.error["param"]) == (400, field)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"device": "toaster"}, "device", "hybrid, cpu, gpu"),
        ({"dtype": "int3"}, "dtype", "int4, int8"),
        ({"dtype": 4}, "dtype", ""),
        ({"cache_dir": "/etc"}, "cache_dir", ""),
        ({"device": "npu"}, "device", ""),
    ],
)
def test_completions_with_a_wrong_load_field(
    loaded: LemonbusServer, body: dict[str, Any], param: str, words: str
) -> None:
    answer = loaded.client.post("/api/v0/completions", {"model": UNREGISTERED, "prompt": "x", **body})
    assert (answer.status, answer.error["param"]) == (400, param), answer
    assert words in answer.error["message"]


def test_a_checkpoint_that_the_hub_does_not_have(server: LemonbusServer) -> None:
    for _ in range(2):
        answer = server.client.post("/api/v0/completions", {"model": "somebody/Nothing-GGUF", "prompt": "x"})
        assert (answer.status, answer.error["code"]) == (404, "checkpoint_not_found"), answer
    unknown = server.client.post("/api/v0/completions", {"model": "nothing", "prompt": "x"})
    assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")


def test_a_foreign_page_cannot_load_a_model(server: LemonbusServer) -> None:
    body = {"model": "somebody/Foreign-GGUF", "prompt": "x"}
    answer = server.client.post("/api/v0/completions", body, Origin="https://elsewhere.example")
    assert (answer.status, answer.error["code"]) == (403, "forbidden"), answer


def test_the_documents_completions_example_is_not_json(server: LemonbusServer) -> None:
    body = b'{\n    "model": "<HUGGINGFACE_CHECKPOINT>",\n    "prompt": "the meaning of life is",\n  }'
    answer = server.client.post("/api/v0/completions", body)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert "line 4 column 3" in answer.error["message"]


@PREFIXES
def test_models_by_get_and_by_the_example(loaded: LemonbusServer, prefix: str) -> None:
    folder = loaded.settings.cache_dir
    answers = [
        loaded.client.get(f"{prefix}/models?cache_dir={folder}"),
        loaded.client.post(f"{prefix}/models", {"cache_dir": folder}),
    ]
    for answer in answers:
        assert answer.status == 200
        (entry,) = [each for each in answer.json()["data"] if each["checkpoint"] == UNREGISTERED]
        assert (entry["device"], entry["dtype"]) == ("cpu", "Q4_0")
    assert loaded.client.post("/v1/models", {}).status == 405
