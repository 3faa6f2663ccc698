"""What a real server does with a model that needs more memory than the machine has."""

from __future__ import annotations

import re

import psutil
import pytest

from tests.conftest import StartServer
from tests.support.models.sparse_gguf import write_sparse_model
from tests.support.server import LemonbusServer

SMALL = [f"extra.tiny-{name}" for name in ("chat", "tale", "embed")]
HUGE = "extra.huge"


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    """A server with three loaded models, and with the file of a model that needs more memory than there is."""
    server = start_module_server("tiny-chat", "tiny-tale", "tiny-embed", memory_reserve=-1)
    write_sparse_model(server.models / "huge.gguf", 2 * psutil.virtual_memory().total)
    for model in SMALL:
        assert server.client.post("/v1/load", {"model_name": model}).status == 200
    return server


def names_the_memory(message: str) -> bool:
    """Whether a refusal says what the model does not fit into: the machine, or the container that the tests run in."""
    return re.search("of (this machine's memory|the memory that .+ allows)", message) is not None


def loaded(server: LemonbusServer) -> list[str]:
    return sorted(each["model_name"] for each in server.health()["all_models_loaded"])


def test_a_model_that_never_fits_is_refused_and_nothing_is_unloaded_for_it(server: LemonbusServer) -> None:
    refused = server.client.post("/v1/load", {"model_name": HUGE})
    assert (refused.status, refused.error["code"]) == (507, "insufficient_memory")
    assert refused.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.headers
    assert names_the_memory(refused.error["message"])
    assert loaded(server) == sorted(SMALL)
    failed = [each for each in server.state()["troubled"] if each["model_name"] == HUGE]
    assert [each["code"] for each in failed] == ["insufficient_memory"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat"])
def test_every_api_says_so(server: LemonbusServer, path: str) -> None:
    messages = [{"role": "user", "content": "x"}]
    refused = server.client.post(path, {"model": HUGE, "messages": messages, "max_tokens": 4})
    assert refused.status == 507
    error = refused.json()["error"]
    assert names_the_memory(error if isinstance(error, str) else error["message"])
    assert loaded(server) == sorted(SMALL)


def test_a_dry_run_tells_what_a_load_would_do_and_changes_nothing(server: LemonbusServer) -> None:
    assert server.client.post("/v1/unload", {"model_name": SMALL[0]}).status == 200
    answer = server.client.post("/v1/load", {"model_name": SMALL[0], "ctx_size": "auto", "dry_run": True}).json()
    plan = answer["plan"]
    assert (answer["model_name"], plan["decision"], plan["evictions"]) == (SMALL[0], "load", [])
    assert plan["context"] == 32_768, "what it was trained for"
    host = next(each for each in plan["places"] if each["place"] == "host")
    assert 0 < host["need"] <= host["available"] < host["free"] < host["total"]
    assert loaded(server) == sorted(SMALL[1:])
    loaded_now = server.client.post("/v1/load", {"model_name": SMALL[0], "ctx_size": "auto"}).json()
    assert loaded_now["context"] == plan["context"]
    shown = {each["model_name"]: each["context"] for each in server.state()["models"]}
    assert shown[SMALL[0]] == plan["context"]


def test_a_dry_run_of_a_model_that_never_fits_says_why(server: LemonbusServer) -> None:
    answer = server.client.post("/v1/load", {"model_name": HUGE, "dry_run": True})
    assert answer.status == 200
    plan = answer.json()["plan"]
    assert (plan["decision"], plan["refusal"]["status"]) == ("refuse", 507)
    assert plan["refusal"]["message"] == answer.json()["message"]
