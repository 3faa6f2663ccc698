"""Ollama's routes about models: exact answers, exact messages to the supervisor, and what is not supported."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from gateway.api.common.model_facts import rfc3339
from gateway.api.ollama.models import in_words
from protocol import RELEASE
from protocol.failures import Code, Failure
from protocol.messages import model_files
from protocol.messages.calls import Progress
from protocol.messages.model_details import CopyModel, DescribeModels
from tests.gateway.api.described_models import LLAMA, THINKER, VECTORS
from tests.gateway.api.error_bodies import api_error
from tests.gateway.app_client import AppClient, SeveralMessages

NAME = "llama3.2:1b"
DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "llama",
    "families": ["llama"],
    "parameter_size": "1.2B",
    "quantization_level": "Q4_K_M",
}
TAG = {
    "name": NAME,
    "model": NAME,
    "modified_at": "2025-04-09T04:39:50Z",
    "size": 807_694_464,
    "digest": "ab" * 32,
    "details": DETAILS,
}


def test_tags_lists_models_and_copies_the_newest_first(ask: AppClient) -> None:
    ask.reports[DescribeModels] = [VECTORS, LLAMA, THINKER]
    models = ask("GET", "/api/tags").json["models"]
    assert [model["name"] for model in models] == [
        "Qwen3-VL-4B-GGUF:latest",
        NAME,
        "mine:latest",
        "llama3.2-1b:latest",
        "nomic-embed:latest",
        "nomic-embed-text-v1-GGUF:latest",
    ]
    assert models[1] == TAG
    assert models[2] == {**TAG, "name": "mine:latest", "model": "mine:latest"}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (253402300800, "9999-12-31T23:59:59Z"),
        (2**62, "9999-12-31T23:59:59Z"),
        (-62135596801, "0001-01-01T00:00:00Z"),
        (-(2**62), "0001-01-01T00:00:00Z"),
        (-59011459200, "0100-01-01T00:00:00Z"),
    ],
)
def test_a_file_may_have_any_late_time(seconds: int, shown: str) -> None:
    assert rfc3339(seconds) == shown


def test_a_model_is_listed_once_under_a_name_that_the_catalogue_has_too(ask: AppClient) -> None:
    entry = structs.replace(LLAMA.entry, given_names=["llama3.2:1b", "mine", "mine:latest"])
    ask.reports[DescribeModels] = [structs.replace(LLAMA, entry=entry)]
    names = ["llama3.2:1b", "mine:latest", "llama3.2-1b:latest"]
    assert [each["name"] for each in ask("GET", "/api/tags").json["models"]] == names


@pytest.mark.parametrize("name", [NAME, "llama3.2-1b", "mine", "llama3.2"])
def test_a_client_finds_each_name_of_a_model(ask: AppClient, name: str) -> None:
    """LangChain's ``ChatOllama`` looks for the name itself, and for the name with any tag."""
    ask.reports[DescribeModels] = [LLAMA]
    listed = [each["model"] for each in ask("GET", "/api/tags").json["models"]]
    assert any(each == name or each.startswith(f"{name}:") for each in listed)


def test_ps_lists_loaded_models(ask: AppClient) -> None:
    ask.reports[DescribeModels] = [LLAMA, THINKER]
    (model,) = ask("GET", "/api/ps").json["models"]
    assert model == {
        "name": "Qwen3-VL-4B-GGUF:latest",
        "model": "Qwen3-VL-4B-GGUF:latest",
        "size": 4_000_000_000,
        "digest": "",
        "details": {
            "parent_model": "",
            "format": "",
            "family": "",
            "families": [],
            "parameter_size": "4.0B",
            "quantization_level": "",
        },
        "expires_at": "9999-12-31T23:59:59Z",
        "size_vram": 4_000_000_000,
        "context_length": 8192,
    }


def test_ps_says_when_an_idle_model_is_unloaded(ask: AppClient) -> None:
    ask.reports[DescribeModels] = [structs.replace(THINKER, expires_at=1_700_000_000.9)]
    (model,) = ask("GET", "/api/ps").json["models"]
    assert model["expires_at"] == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize("field", ["model", "name"])
def test_show_tells_all_that_is_known(ask: AppClient, field: str) -> None:
    ask.reports[DescribeModels] = [LLAMA]
    assert ask("POST", "/api/show", {field: NAME, "verbose": True}).json == {
        "modelfile": f"FROM {NAME}\nPARAMETER num_ctx 4096\n",
        "parameters": "num_ctx 4096",
        "template": "{{ tools }} {{ messages }}",
        "license": "llama3.2",
        "details": DETAILS,
        "model_info": {
            "general.architecture": "llama",
            "llama.context_length": 131_072,
            "general.license": "llama3.2",
            "general.parameter_count": 1_235_814_432,
        },
        "capabilities": ["completion", "tools"],
        "modified_at": "2025-04-09T04:39:50Z",
    }


@pytest.mark.parametrize(
    ("details", "able"), [(THINKER, ["completion", "vision", "tools", "thinking"]), (VECTORS, ["embedding"])]
)
def test_capabilities(ask: AppClient, details: Any, able: list[str]) -> None:
    ask.reports[DescribeModels] = [details]
    assert ask("POST", "/api/show", {"model": "x"}).json["capabilities"] == able


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, ""), (999, "999"), (110_144, "110.14K"), (134_515_008, "134.52M"), (7_615_616_512, "7.6B")],
)
def test_numbers_of_parameters_in_words(number: int, words: str) -> None:
    assert in_words(number) == words


def test_copy_and_delete_answer_without_a_body(ask: AppClient) -> None:
    ask.reports[CopyModel] = "llama3.2-1b"
    ask.reports[model_files.DeleteModel] = model_files.Deleted("mine")
    result = ask("POST", "/api/copy", {"source": NAME, "destination": "mine"})
    assert (result.status_code, result.text) == (200, "")
    assert ask.asked(CopyModel) == [CopyModel(1, NAME, "mine")]
    for field in ("model", "name"):
        assert ask("DELETE", "/api/delete", {field: "mine"}).status_code == 200
    assert [(call.model, call.name_only) for call in ask.asked(model_files.DeleteModel)] == [("mine", True)] * 2


def test_a_pull_is_streamed_unless_it_is_not_wanted(ask: AppClient) -> None:
    progress = [Progress(0, "m", "m.gguf", 1, 1, done, 100) for done in (40,)]
    ask.reports[model_files.PullModel] = SeveralMessages([*progress, model_files.Pulled("m")])
    result = ask("POST", "/api/pull", {"model": NAME})
    assert result.headers["Content-Type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in result.text.splitlines()]
    digest = lines[1].pop("digest")
    assert digest.startswith("sha256:")
    assert len(digest) == len("sha256:") + 64
    assert lines == [
        {"status": "pulling manifest"},
        {"status": "pulling m.gguf", "total": 100, "completed": 40},
        {"status": "verifying sha256 digest"},
        {"status": "success", "done": True},
    ]
    ask.reports[model_files.PullModel] = model_files.Pulled("m")
    whole = ask("POST", "/api/pull", {"name": NAME, "stream": False, "insecure": True})
    assert whole.json == {"status": "success", "done": True}
    assert [(call.progress, call.adopt) for call in ask.asked(model_files.PullModel)] == [(True, True), (False, True)]


def test_an_error_within_a_pull_is_a_string(ask: AppClient) -> None:
    ask.reports[model_files.PullModel] = SeveralMessages([Failure(Code.DOWNLOAD_FAILED, "the hub is gone")])
    result = ask("POST", "/api/pull", {"model": NAME}, headers={"X-Request-ID": "r1"})
    assert result.status_code == 200
    assert result.json == {"error": "the hub is gone", "code": "download_failed", "request_id": "r1"}


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", "/api/show", {}, "model"),
        ("POST", "/api/show", {"model": "a", "name": "b"}, "model"),
        ("POST", "/api/show", {"model": 5}, "model"),
        ("POST", "/api/pull", {}, "model"),
        ("POST", "/api/pull", {"model": "a", "stream": 1}, "stream"),
        ("DELETE", "/api/delete", {}, "model"),
        ("POST", "/api/copy", {"source": "a"}, "destination"),
        ("POST", "/api/copy", {"destination": "a"}, "source"),
        ("POST", "/api/copy", {"source": "a", "destination": ""}, "destination"),
    ],
)
def test_a_wrong_field_is_named(ask: AppClient, method: str, path: str, body: Any, param: str) -> None:
    result = ask(method, path, body)
    assert result.status_code == 400
    assert api_error(result)["param"] == param
    assert not ask.bus.sent


def test_the_root_says_what_clients_look_for(ask: AppClient) -> None:
    result = ask("GET", "/")
    assert (result.status_code, result.text) == (200, "Ollama is running")
    assert (ask("HEAD", "/").status_code, ask("HEAD", "/").text) == (200, "")


def test_the_version_is_one_that_clients_accept(ask: AppClient) -> None:
    answer = ask("GET", "/api/version").json
    assert answer["lemonbus"] == RELEASE
    assert [int(part) for part in answer["version"].split(".")] >= [0, 12, 0]


@pytest.mark.parametrize(
    ("method", "path", "word"),
    [
        ("POST", "/api/create", "extra_models_dir"),
        ("POST", "/api/push", "hub"),
        ("POST", "/api/blobs/sha256:00", "extra_models_dir"),
    ],
)
def test_what_is_not_supported_names_an_alternative(ask: AppClient, method: str, path: str, word: str) -> None:
    result = ask(method, path, {})
    assert (result.status_code, api_error(result)["code"]) == (501, "unsupported_operation")
    assert word in api_error(result)["message"]


def test_whether_a_blob_is_there_is_not_supported_either(ask: AppClient) -> None:
    assert ask("HEAD", "/api/blobs/sha256:00").status_code == 501
