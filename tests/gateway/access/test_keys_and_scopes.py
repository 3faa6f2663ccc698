"""Keys at the application: which are accepted, what each may do, and that the file is read again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from protocol.config.api_keys import KEYS_FILE
from protocol.messages import work
from protocol.messages.caller import Caller
from protocol.messages.health import GetHealth, GetStats, StatsReport
from protocol.messages.model_details import DescribeModels
from protocol.messages.models import GetModel, ListModels, SetParams
from protocol.wire.endpoints import RuntimeDirectory
from tests.gateway.access.conftest import MakeApp
from tests.gateway.access.key_files import bearer, key, secret_of, store
from tests.gateway.api.described_models import LLAMA
from tests.gateway.api.error_bodies import is_error
from tests.gateway.api.supervisor_reports import CPU, HEALTH
from tests.gateway.app_client import AppClient

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
ANSWER = {"choices": [{"message": {"content": "hi"}}]}


def chat(app: AppClient, **headers: str) -> Any:
    app.answers["chat/completions"] = ANSWER
    return app("POST", "/v1/chat/completions", CHAT, headers=headers)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (bearer("ci"), 200),
        ({"Authorization": f"bearer  {secret_of('ci')} "}, 200),
        ({"x-api-key": secret_of("ci")}, 200),
        ({"x-api-key": "wrong", **bearer("ci")}, 200),
        ({}, 401),
        ({"Authorization": "Basic eDp5"}, 401),
        ({"Authorization": "Bearer "}, 401),
        (bearer("other"), 401),
        ({"x-api-key": "é"}, 401),
        (bearer("old"), 401),
    ],
)
def test_which_keys_are_accepted(make_app: MakeApp, tmp_path: Path, headers: dict[str, str], status: int) -> None:
    store(tmp_path, key("ci"), key("old", expires=time.time() - 1))
    result = chat(make_app(), **headers)
    assert result.status_code == status
    if status == 401:
        is_error(result, 401, "unauthorized")
        assert result.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_refusal_to_show_something_does_not_speak_of_a_change(make_app: MakeApp, tmp_path: Path) -> None:
    store(tmp_path, key("ci"))
    app = make_app()
    for method, may_not in (("GET", "make this request"), ("POST", "change the server")):
        result = app(method, "/internal/keys", {"name": "x"} if method == "POST" else None, headers=bearer("ci"))
        message = f"the API key ci may not {may_not}: it does not have the scope admin"
        assert (result.status_code, result.json["error"]["message"]) == (403, message)


@pytest.mark.parametrize(
    ("scopes", "status"),
    [(["inference"], 403), (["logs", "metrics"], 403), (["admin"], 200), (["inference", "admin"], 200)],
)
def test_an_inference_key_does_not_change_the_server(
    make_app: MakeApp, tmp_path: Path, scopes: list[str], status: int
) -> None:
    store(tmp_path, key("ci", scopes=scopes))
    app = make_app()
    app.reports[SetParams] = {"params": {}, "set": [], "ignored": {}}
    result = app("POST", "/v1/params", {"temperature": 0.5}, headers=bearer("ci"))
    assert result.status_code == status
    assert len(app.bus.sent) == (status == 200)
    if status == 403:
        is_error(result, 403, "forbidden")
        assert "scope admin" in result.json["message"]


@pytest.mark.parametrize("path", ["/v1/health", "/v1/stats", "/status", "/api/system/status"])
@pytest.mark.parametrize(("scope", "status"), [("metrics", 200), ("inference", 200), ("logs", 403)])
def test_a_key_of_a_monitor_reads_health(make_app: MakeApp, tmp_path: Path, path: str, scope: str, status: int) -> None:
    store(tmp_path, key("monitor", scopes=[scope]))
    app = make_app()
    app.reports[GetHealth], app.reports[GetStats] = HEALTH, StatsReport()
    assert app("GET", path, headers=bearer("monitor")).status_code == status
    assert app("HEAD", path, headers=bearer("monitor")).status_code == status
    assert scope != "metrics" or app("GET", "/v1/params", headers=bearer("monitor")).status_code == 403


@pytest.mark.parametrize(("scopes", "status"), [(["inference"], 403), (["inference", "admin"], 200)])
def test_an_inference_key_does_not_say_how_long_a_model_stays(
    make_app: MakeApp, tmp_path: Path, scopes: list[str], status: int
) -> None:
    store(tmp_path, key("ci", scopes=scopes))
    app = make_app()
    app.answers["chat/completions"] = ANSWER
    assert app("POST", "/api/chat", {**CHAT, "keep_alive": 0}, headers=bearer("ci")).status_code == status
    assert app("POST", "/api/chat", {**CHAT, "keep_alive": "5m"}, headers=bearer("ci")).status_code == 200
    assert [request.ttl for request in app.asked(work.SubmitRequest)] == ([0.0, 300.0] if status == 200 else [None])


def test_a_key_without_the_scope_runs_nothing(make_app: MakeApp, tmp_path: Path) -> None:
    store(tmp_path, key("watch", scopes=["metrics"]))
    app = make_app()
    is_error(chat(app, **bearer("watch")), 403, "forbidden")
    assert not app.bus.sent
    assert app("PUT", "/v1/chat/completions", headers=bearer("watch")).status_code == 405
    assert app("GET", "/v1/nothing", headers=bearer("watch")).status_code == 404
    assert app("GET", "/live", headers={}).status_code == 200


@pytest.mark.parametrize(
    ("settings", "secret", "status"),
    [
        ({"api_key": "all"}, "all", 200),
        ({"api_key": "all", "admin_api_key": "root"}, "all", 403),
        ({"api_key": "all", "admin_api_key": "root"}, "root", 200),
        ({"admin_api_key": "root"}, "root", 200),
        ({"admin_api_key": "root"}, "all", 401),
    ],
)
def test_keys_of_the_settings(make_app: MakeApp, settings: dict[str, str], secret: str, status: int) -> None:
    app = make_app(**settings)
    app.reports[SetParams] = {"params": {}, "set": [], "ignored": {}}
    result = app("POST", "/v1/params", {"temperature": 0.5}, headers={"Authorization": f"Bearer {secret}"})
    assert result.status_code == status


def test_the_file_is_read_again_without_a_restart(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app()
    assert chat(app).status_code == 200, "without keys it is open to this machine"
    store(tmp_path, key("a"))
    assert [chat(app).status_code, chat(app, **bearer("a")).status_code] == [401, 200]
    store(tmp_path, key("a"), key("b"))
    assert chat(app, **bearer("b")).status_code == 200
    store(tmp_path, key("b"))
    assert [chat(app, **bearer(name)).status_code for name in "ab"] == [401, 200]
    store(tmp_path)
    assert [chat(app, **bearer("b")).status_code, chat(app).status_code] == [401, 401]


def test_a_file_that_is_deleted_or_broken_opens_nothing(make_app: MakeApp, tmp_path: Path) -> None:
    store(tmp_path, key("a"))
    app = make_app()
    assert chat(app, **bearer("a")).status_code == 200
    (tmp_path / KEYS_FILE).write_text("{")
    assert [chat(app, **bearer("a")).status_code, chat(app).status_code] == [200, 401]
    (tmp_path / KEYS_FILE).unlink()
    assert [chat(app, **bearer("a")).status_code, chat(app).status_code] == [401, 401]
    store(tmp_path, key("a"))
    assert chat(app, **bearer("a")).status_code == 200


def test_the_supervisor_gets_the_name_and_the_limits_but_no_key(make_app: MakeApp, tmp_path: Path) -> None:
    limits = {"requests_per_minute": 3, "tokens_per_minute": 1000, "concurrent": 2, "models": ["llama-*"]}
    store(tmp_path, key("ci", **limits))
    app = make_app()
    chat(app, **bearer("ci"))
    (request,) = app.asked(work.SubmitRequest)
    assert request.caller == Caller("ci", **limits).reserving(request.caller.reserved_tokens)


def test_a_process_that_starts_after_the_file_was_deleted_needs_a_key_all_the_same(
    make_app: MakeApp, tmp_path: Path
) -> None:
    store(tmp_path, key("ci"))
    first, idle = make_app(), make_app()
    assert first("GET", "/v1/models").status_code == 401
    (tmp_path / KEYS_FILE).unlink()
    assert [app("GET", "/v1/models").status_code for app in (first, idle, make_app())] == [401, 401, 401]
    RuntimeDirectory(tmp_path / "next").release()
    restarted = make_app(runtime_dir=str(tmp_path / "next"))
    restarted.reports[ListModels] = []
    assert restarted("GET", "/v1/models").status_code == 200


def test_models_that_a_key_may_not_use_are_not_described(make_app: MakeApp, tmp_path: Path) -> None:
    store(tmp_path, key("some", models=["llama*"]), key("none", models=["other*"]))
    app = make_app()
    app.reports[DescribeModels] = [LLAMA]
    names = {name: len(app("GET", "/api/tags", headers=bearer(name)).json["models"]) for name in ("some", "none")}
    assert names["some"] > 0
    assert names["none"] == 0
    assert app("GET", "/api/models/llama3.2-1b", headers=bearer("none")).status_code == 404


def test_models_that_a_key_may_not_use_are_not_listed(make_app: MakeApp, tmp_path: Path) -> None:
    store(tmp_path, key("some", models=["*-CPU"]), key("none", models=["other*"]))
    app = make_app()
    app.reports[ListModels] = [CPU]
    app.reports[GetModel] = CPU
    names = {
        name: [each["id"] for each in app("GET", "/v1/models", headers=bearer(name)).json["data"]]
        for name in ("some", "none")
    }
    assert names == {"some": [CPU.id], "none": []}
    assert app("GET", f"/v1/models/{CPU.id}", headers=bearer("some")).status_code == 200
    assert app("GET", f"/v1/models/{CPU.id}", headers=bearer("none")).status_code == 404
