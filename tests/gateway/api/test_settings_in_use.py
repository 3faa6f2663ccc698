"""``GET /internal/settings``: the settings that the server runs with and their origins, for administrators only."""

from __future__ import annotations

from pathlib import Path

from protocol.config.model_settings import ModelSettings
from protocol.config.settings import Settings, write_settings
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient

HUSH = {"Authorization": "Bearer hush"}


def test_it_shows_the_settings_that_were_accepted_last_with_their_origins(tmp_path: Path) -> None:
    app = AppClient(tmp_path, admin_api_key="hush", api_key="other")
    models = {"a.b": ModelSettings(env={"TOKEN": "secret"})}
    now = Settings(state_dir="/var/lib/lemonbus", admin_api_key="hush", models=models)
    write_settings(now, tmp_path, {"state_dir": "LEMONBUS_STATE_DIR", "admin_api_key": "LEMONBUS_ADMIN_API_KEY"})
    shown = app("GET", "/internal/settings", headers=HUSH)
    settings = shown.json["settings"]
    assert settings["state_dir"] == {"value": "/var/lib/lemonbus", "origin": "LEMONBUS_STATE_DIR"}
    assert settings["port"] == {"value": 13305, "origin": "default"}
    assert settings["admin_api_key"]["value"] == "********"
    assert settings['models."a.b".env.TOKEN']["value"] == "********"
    assert not {word for word in ("hush", "secret") if word in shown.text}
    is_error(app("GET", "/internal/settings", headers={"Authorization": "Bearer other"}), 403, "forbidden")
