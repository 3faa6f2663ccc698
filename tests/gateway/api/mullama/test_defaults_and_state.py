"""Mullama's default models and the state of the server: exact answers and messages."""

from __future__ import annotations

import msgspec
import pytest

from protocol.messages.health import GetHealth
from protocol.messages.model_details import DefaultModel, DescribeModels, ListDefaultModels
from protocol.messages.models import Loaded, LoadModel
from tests.gateway.api.described_models import LLAMA
from tests.gateway.api.error_bodies import is_api_error as is_error
from tests.gateway.api.supervisor_reports import HEALTH
from tests.gateway.app_client import AppClient

NAME = "llama3.2:1b"

DEFAULTS = [
    DefaultModel("llama3.2-1b", "Meta Llama 3.2 1B", "1B", ["chat"], "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"),
    DefaultModel("deepseek-r1-7b", "DeepSeek R1 7B", "7B", ["reasoning"], "bartowski/D-GGUF", ["reasoning"]),
]


def test_the_models_of_the_quick_start(ask: AppClient) -> None:
    ask.reports[ListDefaultModels] = DEFAULTS
    answer = ask("GET", "/api/defaults").json
    assert answer[0] == {
        "name": "llama3.2-1b",
        "description": "Meta Llama 3.2 1B",
        "size_hint": "1B",
        "tags": ["chat"],
        "from": "hf:bartowski/Llama-3.2-1B-Instruct-GGUF",
        "has_thinking": False,
        "has_vision": False,
        "has_tools": False,
    }
    assert answer[1]["has_thinking"]


@pytest.mark.parametrize("name", ["llama3.2-1b", "llama3.2:1b"])
def test_using_one_loads_it_and_makes_it_the_default(ask: AppClient, name: str) -> None:
    ask.reports[ListDefaultModels] = DEFAULTS
    ask.reports[LoadModel] = Loaded("llama3.2-1b", "c", "llamacpp")
    ask.reports[DescribeModels] = [LLAMA]
    answer = ask("POST", f"/api/defaults/{name}/use").json
    assert (answer["status"], answer["alias"], answer["is_default"]) == ("loaded", name, True)
    (call,) = ask.asked(LoadModel)
    assert (call.model, call.set_default, call.unless_loaded) == ("llama3.2-1b", True, False)


def test_an_unknown_one_is_404(ask: AppClient) -> None:
    ask.reports[ListDefaultModels] = DEFAULTS
    is_error(ask("POST", "/api/defaults/unknown/use"), 404, "not_found")
    assert not ask.asked(LoadModel)


def test_the_servers_state(ask: AppClient) -> None:
    ask.reports[GetHealth] = msgspec.structs.replace(
        HEALTH,
        counters={"requests_total": 150, "tokens_generated": 45_000},
        default_model="Llama-3.2-1B-Instruct-GGUF",
        default_alias=NAME,
        ipc_endpoint="ipc:///run/bus",
        gpu_available=True,
        memory_used=45,
        memory_total=160,
    )
    assert ask("GET", "/status").json == {
        "status": "ok",
        "version": "1.2.3",
        "uptime_secs": 12,
        "models_loaded": 2,
        "active_requests": 2,
    }
    assert ask("GET", "/api/system/status").json == {
        "version": "1.2.3",
        "uptime_secs": 12,
        "models_loaded": 2,
        "http_endpoint": ask.session.settings.base_url,
        "ipc_endpoint": "ipc:///run/bus",
        "default_model": NAME,
        "stats": {
            "requests_total": 150,
            "tokens_generated": 45_000,
            "active_requests": 2,
            "gpu_available": True,
            "memory_used_bytes": 45,
            "memory_total_bytes": 160,
        },
    }


def test_without_a_default_model_there_is_none(ask: AppClient) -> None:
    ask.reports[GetHealth] = HEALTH
    assert ask("GET", "/api/system/status").json["default_model"] is None
