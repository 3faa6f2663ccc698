"""GET /api/v1/models and /api/v1/models/{model_id}: what is here, what is available, and what this machine cannot run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.field_paths import missing
from tests.compatibility.hub_server import CPU, HYBRID, PHI, HubServer, ids, pull
from tests.support.server import LemonbusServer

SAME = "Phi-4-mini-instruct-GGUF"
"""The built-in model of the same file."""
FLM = "Llama-3.2-1B-FLM"
FIELDS = ["object", *(f"data[].{name}" for name in ("id", "created", "object", "owned_by", "checkpoint", "recipe"))]
MORE = [f"data[].{name}" for name in ("name", "downloaded", "labels", "size", "suggested")]
PREVIEW = [f"data[].{name}" for name in ("checkpoint", "device", "dtype")]


@pytest.fixture(scope="module")
def folder(module_hub_server: HubServer) -> Path:
    return module_hub_server.folder


@pytest.fixture(scope="module")
def server(module_hub_server: HubServer) -> LemonbusServer:
    server = module_hub_server.server
    assert pull(server, model_name=CPU)[0] == 200
    assert pull(server, **PHI)[0] == 200
    return server


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1", "/v0", "/api/v0"])
def test_only_what_is_downloaded(server: LemonbusServer, prefix: str) -> None:
    answer = server.client.get(f"{prefix}/models").json()
    assert missing(answer, FIELDS + PREVIEW) == []
    assert answer["object"] == "list"
    listed = {entry["id"] for entry in answer["data"]} - {"my-model"}  # a name that another test has given to a file
    assert listed == {
        CPU,
        PHI["model_name"],
        SAME,
        "extra.tiny-chat",
        "extra.tiny-loop",
    }
    for entry in answer["data"]:
        assert (entry["object"], entry["owned_by"]) == ("model", "lemonade")
        assert isinstance(entry["created"], int)
    cpu = next(entry for entry in answer["data"] if entry["id"] == CPU)
    assert cpu["checkpoint"] == "amd/Qwen2.5-0.5B-Instruct-quantized_int4-float16-cpu-onnx"
    assert (cpu["recipe"], cpu["device"]) == ("oga-cpu", "cpu")


def test_show_all_has_the_catalogue(server: LemonbusServer) -> None:
    answer = server.client.get("/api/v1/models?show_all=true").json()
    assert missing(answer, FIELDS + MORE) == []
    assert all(entry["name"] == entry["id"] for entry in answer["data"])
    assert all(isinstance(entry["labels"], list) for entry in answer["data"])
    assert {entry["downloaded"] for entry in answer["data"]} == {True, False}
    assert len(answer["data"]) >= 60
    assert all(entry["created"] > 1_500_000_000 for entry in answer["data"])
    for entry in answer["data"]:
        assert entry["supported"] is (entry["unsupported_reason"] == "")
    assert {"hot", "cpu"} <= set(next(entry for entry in answer["data"] if entry["id"] == CPU)["labels"])


def test_what_the_machine_cannot_run_is_listed_with_a_reason(
    server: LemonbusServer, laptop_server: LemonbusServer
) -> None:
    found = {each["id"]: each for each in server.client.get("/v1/models?show_all=true").json()["data"]}
    assert (found[FLM]["supported"], found[FLM]["unsupported_reason"]) == (False, "Requires an AMD NPU")
    assert found[HYBRID]["unsupported_reason"]
    assert laptop_server.client.get(f"/v1/models/{FLM}").json()["supported"]


@pytest.mark.parametrize("name", [CPU, HYBRID, FLM, "llama3.2:1b", "unsloth/Phi-4-mini-instruct-GGUF:Q4_K_M"])
def test_one_model(server: LemonbusServer, name: str) -> None:
    answer = server.client.get(f"/api/v1/models/{name}")
    assert answer.status == 200, answer
    shown = answer.json()
    assert missing(shown, ["id", "created", "object", "owned_by", "checkpoint", "recipe"]) == []
    assert (shown["object"], shown["owned_by"]) == ("model", "lemonade")
    if name in (HYBRID, FLM):
        assert shown["id"] == name
        assert (shown["supported"], bool(shown["unsupported_reason"])) == (False, True)


def test_an_unknown_model(server: LemonbusServer) -> None:
    answer = server.client.get("/api/v1/models/No-Such-Model")
    assert answer.status == 404
    assert answer.json()["error"]["message"] == "Model No-Such-Model has not been found"
    assert answer.json()["error"]["type"] == "not_found"


@pytest.fixture
def another_program(server: LemonbusServer, folder: Path) -> Iterator[str]:
    """Act as another program that downloads a model of the catalogue; it stays until the end of the test. Return its name."""
    assert server
    repository = folder / "hf/hub/models--LiquidAI--LFM2-1.2B-GGUF"
    snapshot = repository / "snapshots/abc"
    snapshot.mkdir(parents=True)
    os.link(min((folder / "hf/hub").glob("models--unsloth--Phi*/blobs/*")), snapshot / "LFM2-1.2B-Q4_K_M.gguf")
    yield "LFM2-1.2B-GGUF"
    shutil.rmtree(repository)


def test_what_another_program_downloaded_is_found(server: LemonbusServer, another_program: str) -> None:
    assert another_program in ids(server)
