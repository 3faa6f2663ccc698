"""health, stats and live: every field of the documents, and our own fields."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import msgspec
import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from gateway.api.common.health_reports import report_for
from gateway.api.lemonade.health import server_health
from gateway.api.lemonade.stats import request_stats
from gateway.http.request_context import RequestContext
from protocol.failures import Code, Failure
from protocol.messages.events import Outcome
from protocol.messages.health import GetHealth, GetStats, StatsReport
from protocol.times import NEVER_UNLOADED
from tests.gateway.api.error_bodies import is_error
from tests.gateway.api.supervisor_reports import HEALTH, running
from tests.gateway.app_client import AppClient


def test_the_address_of_an_engine_on_another_node_is_not_shown_as_one_of_this_machine(ask: AppClient) -> None:
    elsewhere = running("a", 1.0, backend_url="http://127.0.0.1:8001", node="gpu2")
    remote = running("b", 2.0, backend_url="http://10.0.0.9:80/v1", node="gpu2")
    here = running("c", 3.0, backend_url="http://127.0.0.1:8002", node="head")
    ask.reports[GetHealth] = msgspec.structs.replace(HEALTH, models=[elsewhere, remote, here])
    shown = ask("GET", "/v1/health").json["all_models_loaded"]
    urls = {each["model_name"]: each["backend_url"] for each in shown}
    assert urls == {"a": "", "b": "http://10.0.0.9:80/v1", "c": "http://127.0.0.1:8002/v1"}


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_health_has_the_fields_of_all_documents(ask: AppClient, prefix: str) -> None:
    ask.reports[GetHealth] = HEALTH
    body = ask("GET", f"{prefix}/health").json
    assert (body["status"], body["version"], body["websocket_port"]) == ("ok", "1.2.3", 13305)
    assert (body["model_loaded"], body["checkpoint_loaded"]) == ("new", "owner/new")
    assert body["max_models"] == {
        "llm": 4,
        "embedding": 3,
        "reranking": 2,
        "audio": 1,
        "transcription": 1,
        "image": 1,
        "tts": 1,
    }
    assert body["all_models_loaded"] == [
        {
            "model_name": name,
            "checkpoint": f"owner/{name}",
            "last_use": last_use,
            "type": "llm",
            "device": "cpu",
            "recipe": "llamacpp",
            "recipe_options": {"ctx_size": 4096},
            "backend_url": url,
            **more,
        }
        for name, last_use, url, more in [
            (
                *("old", 100.5, "http://127.0.0.1:8001/v1"),
                {
                    "pid": 21,
                    "launch_command": ["/opt/llama-server", "-m", "/models/old.gguf"],
                    "is_busy": True,
                    "pinned": True,
                    "ttl": None,
                    "expires_at": None,
                },
            ),
            (
                *("new", 200.5, "http://127.0.0.1:8002/v1"),
                {
                    "pid": 0,
                    "launch_command": [],
                    "is_busy": False,
                    "pinned": False,
                    "ttl": 60,
                    "expires_at": 260.5,
                },
            ),
        ]
    ]
    assert body["pinned_models"] == {**dict.fromkeys(body["pinned_models"], 0), "llm": 1}
    assert "secret" not in json.dumps(body)


def test_only_administrators_see_command_lines() -> None:
    models = msgspec.to_builtins(server_health(HEALTH, 1, detail=False).all_models_loaded)
    assert all("launch_command" not in model for model in models)
    assert "/models/old.gguf" not in json.dumps(models)


def test_health_has_operator_fields() -> None:
    ours = msgspec.to_builtins(server_health(HEALTH, 1, detail=True).lemonbus)
    assert ours["state"] == "ok"
    assert [(model["model_name"], model["state"]) for model in ours["models"]] == [
        ("old", "ready"),
        ("new", "draining"),
        ("coming", "loading"),
    ]
    assert ours["models"][0] | {"granted": 2, "queued": 1, "slots": 4, "load_seconds": 0.25} == ours["models"][0]
    assert ours["troubled"] == [
        {
            "model_name": "bad",
            "code": "load_failed",
            "reason": "it did not load",
            "detail": "SIGILL",
            "failures": 3,
            "retry_in_seconds": 7.5,
        }
    ]
    assert (ours["downloads"], ours["counters"]) == (["m"], {"evictions": 2})


def test_a_key_sees_only_its_models_also_of_the_former_release() -> None:
    report = msgspec.structs.replace(HEALTH, former_models=["old", "new"])
    assert report_for(report, lambda model: model == "new").former_models == ["new"]


@pytest.mark.parametrize(("ttl", "shown"), [(0.0, 0), (60.0, 60), (NEVER_UNLOADED, None)])
def test_a_model_that_stays_is_told_apart_from_one_that_leaves_when_it_is_idle(
    ask: AppClient, ttl: float, shown: float | None
) -> None:
    ask.reports[GetHealth] = msgspec.structs.replace(HEALTH, models=[running("m", 100.5, ttl=ttl)])
    (model,) = ask("GET", "/v1/health").json["all_models_loaded"]
    assert model["ttl"] == shown


def test_health_without_models(ask: AppClient) -> None:
    ask.reports[GetHealth] = msgspec.structs.replace(HEALTH, models=[], max_models={})
    body = ask("GET", "/v1/health").json
    assert body["status"] == "ok"
    assert body["model_loaded"] is None
    assert body["all_models_loaded"] == []
    assert set(body["max_models"].values()) == {0}


def test_the_websocket_port_without_a_configured_port_is_that_of_the_request(tmp_path: Path) -> None:
    ask = AppClient(tmp_path, port=0)
    ask.reports[GetHealth] = HEALTH
    assert ask("GET", "/v1/health", port=8123).json["websocket_port"] == 8123


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_stats_counts_processed_and_all_prompt_tokens(ask: AppClient, prefix: str) -> None:
    times = array("f", [0.01, 0.02, 0.03, 0.04, 0.05]).tobytes()
    outcome = Outcome(137, 9, 5, 2.14, 0.25, 2.5, times)
    ask.reports[GetStats] = StatsReport("m", outcome)
    assert ask("GET", f"{prefix}/stats").json == {
        "time_to_first_token": 2.14,
        "tokens_per_second": 20.0,
        "input_tokens": 128,
        "output_tokens": 5,
        "decode_token_times": [0.01, 0.02, 0.03, 0.04, 0.05],
        "prompt_tokens": 137,
        "model": "m",
        "cached_tokens": 9,
        "cache_tokens": 9,
        "total_seconds": 2.5,
    }


def test_stats_of_one_model_and_of_none(ask: AppClient) -> None:
    ask.reports[GetStats] = StatsReport()
    body = ask("GET", "/v1/stats?model=m").json
    assert ask.asked(GetStats)[0].model == "m"
    assert body == msgspec.to_builtins(request_stats(StatsReport()))
    assert (body["tokens_per_second"], body["decode_token_times"], body["model"]) == (0.0, [], None)


@pytest.mark.parametrize("path", ["/live", "/livez", "/healthz"])
def test_live_has_its_names_only_at_the_root_and_sends_no_message(tmp_path: Path, path: str) -> None:
    ask = AppClient(tmp_path, api_key="k" * 32)
    assert ask("GET", path).text == '{"status":"ok"}', "without the key"
    head = ask("HEAD", path)
    assert (head.status_code, head.text) == (200, "")
    key = {"Authorization": f"Bearer {'k' * 32}"}
    for prefix in VERSION_PREFIXES:
        is_error(ask("GET", f"{prefix}{path}", headers=key), 404, "not_found")
    assert not ask.bus.sent


@pytest.mark.parametrize(
    "path", ["/live", "/livez", "/healthz", "/health", "/readyz", "/v1/health", "/metrics", "/live/", "/page/app.js"]
)
def test_what_monitors_and_browsers_ask_again_and_again_is_logged_for_debugging_only(path: str) -> None:
    assert RequestContext("label").level(path) == "debug"


@pytest.mark.parametrize("path", ["/", "/status", "/v1/models", "/healthzz"])
def test_other_requests_are_logged(path: str) -> None:
    assert RequestContext("label").level(path) == "info"


@pytest.mark.parametrize(("code", "level"), [(Code.UNSUPPORTED, "info"), (Code.INTERNAL, "warning")])
def test_a_request_for_a_route_that_is_not_served_is_logged_as_normal(code: Code, level: str) -> None:
    context = RequestContext("label")
    context.failure = Failure(code, "the reason")
    assert context.level("/v1/assistants") == level
