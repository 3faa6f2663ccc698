"""Where each value of the settings comes from, and the descriptions of the settings."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from protocol.config.fields import SECRET_SETTINGS, setting_fields
from protocol.config.resolver import (
    Flags,
    Origin,
    is_loopback,
    masked,
    require_key_beyond_loopback,
)
from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from tests.protocol.config.resolved_settings import PATH, resolved


def test_without_sources_all_settings_are_defaults() -> None:
    found = resolved()
    assert found.settings == Settings()
    assert set(found.origins) == set(setting_fields())
    assert {origin.kind for origin in found.origins.values()} == {"default"}
    assert not found.warnings


@pytest.mark.parametrize(
    ("flags", "environment", "text", "port", "origin"),
    [
        ({}, {}, "", 13305, Origin("default")),
        ({}, {}, "\nport = 1", 1, Origin("file", f"{PATH}:2")),
        ({}, {"LEMONBUS_PORT": "2"}, "\nport = 1", 2, Origin("environment", "LEMONBUS_PORT")),
        ({"port": "3"}, {"LEMONBUS_PORT": "2"}, "\nport = 1", 3, Origin("flag", "--port")),
        ({"port": "3"}, {}, "", 3, Origin("flag", "--port")),
        ({}, {"LEMONBUS_PORT": ""}, "\nport = 1", 1, Origin("file", f"{PATH}:2")),
    ],
)
def test_the_more_specific_source_wins(
    flags: Flags, environment: dict[str, str], text: str, port: int, origin: Origin
) -> None:
    found = resolved(flags, environment, text)
    assert found.settings.port == port
    assert found.origins["port"] == origin


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("host", "::1", "::1"),
        ("host", "fe80::1%lo", "fe80::1%lo"),
        ("host", "host-1.example.org", "host-1.example.org"),
        ("port", "0", 0),
        ("offline", "true", True),
        ("offline", "Off", False),
        ("offline", "1", True),
        ("grace", "2.5", 2.5),
        ("grace", "2", 2.0),
        ("log_level", "trace", "trace"),
        ("load", "A,B", ["A", "B"]),
        ("load", " A , ,B,", ["A", "B"]),
        ("state_dir", "models", "/here/models"),
        ("state_dir", "/srv/../srv/models", "/srv/models"),
        ("state_dir", "~/models", "/home/me/models"),
        ("extra_models_dir", "./x", "/here/x"),
        ("llama_server", "llama-server", "llama-server"),
        ("ctx_size", "auto", -1),
        ("memory_reserve", "-1", -1),
        ("device_memory_reserve", "auto", -1),
    ],
)
def test_variables_mean(name: str, text: str, value: object) -> None:
    found = resolved(environment={f"LEMONBUS_{name.upper()}": text, "HOME": "/home/me"})
    assert getattr(found.settings, name) == value


@pytest.mark.parametrize("name", ["ctx_size", "memory_reserve", "device_memory_reserve"])
def test_what_lemonbus_chooses_is_called_auto_or_minus_one(name: str) -> None:
    for text in (f'{name} = "auto"', f"{name} = -1"):
        assert getattr(resolved({}, {}, text).settings, name) == -1
    assert getattr(resolved({name: "auto"}).settings, name) == -1


def test_repeated_flags_make_a_list_and_are_not_split_at_commas() -> None:
    assert resolved({"load": ["A", "B,C"]}).settings.load == ["A", "B,C"]


def test_directories_in_the_file_are_relative_to_the_file() -> None:
    assert resolved(text='state_dir = "state"').settings.state_dir == "/etc/lemonbus/state"


@pytest.mark.parametrize(
    ("environment", "key", "where"),
    [
        ({"LEMONBUS_API_KEY": "a", "LEMONADE_API_KEY": "b"}, "a", "LEMONBUS_API_KEY"),
        ({"LEMONBUS_API_KEY": "", "LEMONADE_API_KEY": "b"}, "b", "LEMONADE_API_KEY"),
    ],
)
def test_lemonades_key_counts_too(environment: dict[str, str], key: str, where: str) -> None:
    found = resolved(environment=environment)
    assert found.settings.api_key == key
    assert found.origins["api_key"].name == where


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.168.1.2", False),
        ("::ffff:8.8.8.8", False),
        ("example.org", False),
        ("localhost.evil.org", False),
    ],
)
def test_beyond_loopback_only_with_a_key_or_permission(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    require_key_beyond_loopback(Settings(host=host, api_key="k"))
    require_key_beyond_loopback(Settings(host=host, allow_remote=True))
    if loopback:
        require_key_beyond_loopback(Settings(host=host))
    else:
        with pytest.raises(LemonbusError, match="--allow-remote") as caught:
            require_key_beyond_loopback(Settings(host=host))
        assert "LEMONBUS_API_KEY" in str(caught.value)


def test_secrets_are_masked_and_everything_else_shown() -> None:
    assert masked("api_key", "k") == "********"
    assert masked("api_key", "") == ""
    assert masked("port", 1) == 1
    assert set(setting_fields()) >= SECRET_SETTINGS


def test_the_defaults_in_the_document_are_right() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "configuration.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([^`$]+)` \|", text, re.MULTILINE)
    assert len(rows) > 15
    assert {name: tomllib.loads(f"x = {value}")["x"] for name, value in rows} == {
        name: getattr(Settings(), name) for name, _ in rows
    }


def test_the_unit_of_each_time_and_size_is_known() -> None:
    """`lemonbus serve --help` shows it: ``--grace SECONDS``, ``--body-limit BYTES``."""
    units = {name: field.unit for name, field in setting_fields().items()}
    assert units["grace"] == units["idle_ttl"] == units["fetch_images_timeout"] == "seconds"
    sizes = {"body_memory", "spool_over"}
    sizes |= {name for name in units if re.search(r"_(bytes|limit)(_of_key)?$", name)}
    assert {name for name, unit in units.items() if unit == "bytes"} == sizes
    assert units["port"] == units["slots"] == units["host"] == ""
