"""Every route of every dialect declares which scope a key needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import falcon
import pytest

from gateway.access.scopes import Scope, declared_scope, needed_scope
from gateway.app import DIALECTS
from tests.gateway.app_client import AppClient

ADMIN, INFERENCE, LOGS = Scope.ADMIN, Scope.INFERENCE, Scope.LOGS


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    session = AppClient(tmp_path_factory.mktemp("app")).session
    return {path: resource for dialect in DIALECTS for path, resource in dialect.routes(session).items()}


def methods(resource: object) -> list[str]:
    return [method for method in falcon.HTTP_METHODS if callable(getattr(resource, f"on_{method.lower()}", None))]


def test_every_route_declares_a_scope_for_each_method(routes: dict[str, Any]) -> None:
    """A route that fails here needs ``scopes`` or ``changes`` in its resource: see ``gateway/access/scopes.py``."""
    undeclared = [
        f"{method} {path}"
        for path, resource in routes.items()
        for method in methods(resource)
        if declared_scope(resource, method) is None
    ]
    assert undeclared == []
    assert all(methods(resource) for resource in routes.values())


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/v1/chat/completions", INFERENCE),
        ("POST", "/api/v1/completions", INFERENCE),
        ("POST", "/v1/embeddings", INFERENCE),
        ("POST", "/v1/audio/transcriptions", INFERENCE),
        ("POST", "/v1/images/edits", INFERENCE),
        ("POST", "/v1/reranking", INFERENCE),
        ("GET", "/v1/models", INFERENCE),
        ("HEAD", "/v1/models", INFERENCE),
        ("POST", "/v0/models", INFERENCE),
        ("GET", "/v1/health", INFERENCE),
        ("GET", "/v1/params", INFERENCE),
        ("POST", "/v1/params", ADMIN),
        ("POST", "/v1/load", ADMIN),
        ("GET", "/v0/load", ADMIN),
        ("GET", "/v1/pull/variants", INFERENCE),
        ("GET", "/api/v0/unload", ADMIN),
        ("POST", "/v1/unload", ADMIN),
        ("POST", "/v1/pull", ADMIN),
        ("POST", "/v1/delete", ADMIN),
        ("GET", "/internal/configuration", ADMIN),
        ("GET", "/internal/settings", ADMIN),
        ("GET", "/internal/keys", ADMIN),
        ("POST", "/internal/keys", ADMIN),
        ("DELETE", "/internal/keys/{name}", ADMIN),
        ("GET", "/internal/upgrade", ADMIN),
        ("POST", "/internal/upgrade", ADMIN),
        ("POST", "/internal/reload", ADMIN),
        ("POST", "/v1/install", ADMIN),
        ("POST", "/v1/uninstall", ADMIN),
        ("POST", "/v1/slots/{slot_id}", ADMIN),
        ("GET", "/api/models", INFERENCE),
        ("GET", "/api/models/{path:path}", INFERENCE),
        ("POST", "/api/models/{path:path}", ADMIN),
        ("DELETE", "/api/models/{path:path}", ADMIN),
        ("POST", "/api/models/load", ADMIN),
        ("POST", "/api/models/pull", ADMIN),
        ("POST", "/api/defaults/{name}/use", ADMIN),
        ("GET", "/api/system/status", INFERENCE),
        ("GET", "/status", INFERENCE),
        ("POST", "/api/generate", INFERENCE),
        ("GET", "/api/tags", INFERENCE),
        ("POST", "/api/show", INFERENCE),
        ("POST", "/api/pull", ADMIN),
        ("POST", "/api/copy", ADMIN),
        ("DELETE", "/api/delete", ADMIN),
        ("GET", "/logs/stream", LOGS),
    ],
)
def test_scopes_of_known_routes(routes: dict[str, Any], method: str, path: str, scope: Scope) -> None:
    assert needed_scope(routes[path], method) is scope


def test_a_route_that_declares_nothing_is_for_administrators(tmp_path: Path) -> None:
    class Undeclared:
        def on_post(self) -> None:
            """Declares nothing."""

    assert declared_scope(Undeclared(), "POST") is None
    assert needed_scope(Undeclared(), "POST") is ADMIN
