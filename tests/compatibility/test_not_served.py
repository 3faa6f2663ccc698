"""Unsupported routes: 501 with an alternative."""

from __future__ import annotations

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from tests.support.server import LemonbusServer


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
@pytest.mark.parametrize(
    ("route", "word"),
    [
        ("images/variations", "images/edits"),
        ("realtime", "WebSocket"),
        ("realtime/client_secrets", "lemonbus keys add"),
    ],
)
def test_unsupported_routes_name_an_alternative(
    shared_server: LemonbusServer, prefix: str, route: str, word: str
) -> None:
    answer = shared_server.client.post(f"{prefix}/{route}", {"prompt": "a cat"})
    assert (answer.status, answer.error["code"]) == (501, "unsupported_operation"), answer
    assert word in answer.error["message"]
    assert "yet" not in answer.error["message"]
    others = {"realtime": 426, "realtime/client_secrets": 501}
    assert shared_server.client.get(f"{prefix}/{route}").status == others.get(route, 405)


@pytest.mark.parametrize(
    ("route", "word"), [("create", "extra_models_dir"), ("push", "hub"), ("blobs/sha256:00", "extra_models_dir")]
)
def test_what_ollama_has_beyond_models_names_an_alternative(
    shared_server: LemonbusServer, route: str, word: str
) -> None:
    answer = shared_server.client.post(f"/api/{route}", {"model": "m"})
    assert (answer.status, answer.json()["code"]) == (501, "unsupported_operation"), answer
    assert word in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "word"),
    [
        ("POST", "/v1/audio/generations", "audio/speech"),
        ("POST", "/api/v0/3d/generations", "images/generations"),
        ("POST", "/v1/classify", "moderations"),
        ("GET", "/api/v1/registry/search?query=qwen", "pull/variants"),
        ("POST", "/v1/install/dry-run", "system-info"),
        ("DELETE", "/v1/cloud/auth/fireworks", "configuration file"),
        ("GET", "/v1/docs/api/lemonade", "/openapi.json"),
        ("POST", "/v0/jobs", "batches"),
        ("POST", "/v1/routing/validate", "aliases"),
        ("POST", "/internal/shutdown", "SIGTERM"),
        ("POST", "/internal/set", "/internal/reload"),
        ("GET", "/internal/config/defaults", "/internal/settings"),
        ("POST", "/internal/cleanup-cache", "lemonbus prune"),
        ("POST", "/internal/models/sync", "check-updates"),
        ("POST", "/mcp", "tool"),
    ],
)
def test_what_lemonade_has_beyond_models_names_an_alternative(
    shared_server: LemonbusServer, method: str, path: str, word: str
) -> None:
    answer = shared_server.client.start(method, path, {} if method == "POST" else None).finish()
    assert (answer.status, answer.error["code"]) == (501, "unsupported_operation"), answer
    assert word in answer.error["message"]


@pytest.mark.parametrize("prefix", ["", *VERSION_PREFIXES])
def test_the_log_stream_is_also_below_each_prefix(shared_server: LemonbusServer, prefix: str) -> None:
    answer = shared_server.client.get(f"{prefix}/logs/stream")
    assert answer.status == 426, answer
