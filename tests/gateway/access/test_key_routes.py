"""``/internal/keys`` at the application: who may use it, what it changes, and that this holds with the next request."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from protocol.config.api_keys import KEYS_FILE, read_keys
from tests.gateway.access.conftest import MakeApp
from tests.gateway.access.key_files import bearer, key, secret_of, store
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient

ADMIN = {"name": "root", "scopes": ["admin"]}


def headers(made: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {made.json['key']}"}


def test_the_first_key_closes_the_server_and_a_revoked_one_is_refused_at_once(
    make_app: MakeApp, tmp_path: Path
) -> None:
    app = make_app()
    listed = app("GET", "/internal/keys")
    assert listed.json == {"file": str(tmp_path / KEYS_FILE), "required": False, "keys": []}
    first = app("POST", "/internal/keys", ADMIN)
    assert (first.status_code, first.json["first"], first.json["valid_keys"]) == (200, True, 1)
    assert first.headers["Cache-Control"] == "no-store"
    is_error(app("GET", "/internal/keys"), 401, "unauthorized")
    second = app("POST", "/internal/keys", {"name": "ci", "models": ["q*"]}, headers=headers(first))
    assert (second.json["first"], second.json["valid_keys"], second.json["valid_admin_keys"]) == (False, 2, 1)
    listed = app("GET", "/internal/keys", headers=headers(first))
    assert [(each["name"], each["origin"]) for each in listed.json["keys"]] == [("root", "file"), ("ci", "file")]
    for made in (first, second):
        assert made.json["key"] not in (tmp_path / KEYS_FILE).read_text() + listed.text
    assert app("GET", "/internal/keys", headers=headers(second)).status_code == 403
    assert app("DELETE", "/internal/keys/ci", headers=headers(first)).json["valid_keys"] == 1
    is_error(app("GET", "/v1/models", headers=headers(second)), 401, "unauthorized")
    is_error(app("DELETE", "/internal/keys/ci", headers=headers(first)), 404, "not_found")
    assert app("DELETE", "/internal/keys/root", headers=headers(first)).json["valid_keys"] == 0
    is_error(app("GET", "/internal/keys", headers=headers(first)), 401, "unauthorized")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"name": "root", "scopes": ["admin"]}, 409, "conflict"),
        ({"name": "a/b"}, 400, "invalid_request"),
        ({"name": "api_key"}, 400, "invalid_request"),
        ({}, 400, "invalid_request"),
        ({"name": "x", "scopes": ["all"]}, 400, "invalid_request"),
        ({"name": "x", "scopes": []}, 400, "invalid_request"),
        ({"name": "x", "models": [""]}, 400, "invalid_request"),
        ({"name": "x", "concurrent": -1}, 400, "invalid_request"),
        ({"name": "x", "expires": 5.0}, 400, "invalid_request"),
        ({"name": "x", "sha256": "0" * 64}, 400, "invalid_request"),
    ],
)
def test_wrong_keys_change_nothing(
    make_app: MakeApp, tmp_path: Path, body: dict[str, Any], status: int, kind: str
) -> None:
    store(tmp_path, key("root", scopes=["admin"]))
    before = (tmp_path / KEYS_FILE).read_bytes()
    is_error(make_app()("POST", "/internal/keys", body, headers=bearer("root")), status, kind)
    assert (tmp_path / KEYS_FILE).read_bytes() == before


def test_the_first_key_must_be_an_administrators(make_app: MakeApp, tmp_path: Path) -> None:
    is_error(make_app()("POST", "/internal/keys", {"name": "ci"}), 409, "conflict", "scopes")
    assert not (tmp_path / KEYS_FILE).exists()
    app = make_app(admin_api_key="hush")
    made = app("POST", "/internal/keys", {"name": "ci"}, headers={"Authorization": "Bearer hush"})
    assert (made.status_code, made.json["valid_keys"], made.json["first"]) == (200, 2, False)


def test_a_key_of_the_settings_is_not_said_to_be_revoked(make_app: MakeApp, tmp_path: Path) -> None:
    store(tmp_path, key("root", scopes=["admin"]))
    app = make_app(admin_api_key=secret_of("root"))
    for name, reason in (("root", "would stay valid"), ("admin_api_key", "change it there")):
        answer = app("DELETE", f"/internal/keys/{name}", headers=bearer("root"))
        assert reason in is_error(answer, 409, "conflict")["message"]
    assert [each.name for each in read_keys(tmp_path / KEYS_FILE)] == ["root"]


def test_a_broken_file_is_reported_and_stays_as_it_is(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(admin_api_key="hush")
    (tmp_path / KEYS_FILE).write_text("{")
    for method, path, body in (
        ("GET", "/internal/keys", None),
        ("POST", "/internal/keys", {"name": "ci"}),
        ("DELETE", "/internal/keys/ci", None),
    ):
        answer = app(method, path, body, headers={"Authorization": "Bearer hush"})
        assert "broken" in is_error(answer, 500, "internal_error")["message"]
    assert (tmp_path / KEYS_FILE).read_text() == "{"


def test_a_key_that_a_full_disk_does_not_take_is_refused_as_such(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(admin_api_key="hush")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("protocol.config.api_keys.write_keys", full)
    answer = app("POST", "/internal/keys", {"name": "ci"}, headers={"Authorization": "Bearer hush"})
    error = is_error(answer, 507, "model_error")["error"]
    assert error["code"] == "insufficient_storage"
    assert "No space left on device; the keys are unchanged" in error["message"]
    assert not (tmp_path / KEYS_FILE).exists()


@pytest.mark.parametrize(
    "sent",
    [{"Origin": "http://other"}, {"X-Forwarded-For": "10.0.0.1"}, {"Host": "other"}],
    ids=["page", "proxy", "host"],
)
def test_strangers_of_an_open_server_manage_no_keys(make_app: MakeApp, tmp_path: Path, sent: dict[str, str]) -> None:
    def ask(app: AppClient, method: str, path: str, body: Any = None) -> int:
        return int(app(method, path, body, headers=sent, host=sent.get("Host", "localhost")).status_code)

    app = make_app()
    assert ask(app, "GET", "/internal/keys") == 403
    assert ask(app, "POST", "/internal/keys", ADMIN) == 403
    assert not (tmp_path / KEYS_FILE).exists()
    store(tmp_path, key("ci"))
    assert ask(make_app(), "DELETE", "/internal/keys/ci") == 401
    assert [each.name for each in read_keys(tmp_path / KEYS_FILE)] == ["ci"]
