"""Where each value of the settings comes from, and what is said when one is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from protocol.config.fields import SECRET_SETTINGS, setting_fields
from protocol.config.resolver import (
    ConfigFile,
    Flags,
    Origin,
    ResolvedSettings,
    is_loopback,
    masked,
    require_key_beyond_loopback,
    resolve,
)
from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from tests.support.accepted_share import accepted_share

PATH = "/etc/lemonbus/lemonbus.toml"


def resolved(
    flags: Flags | None = None, environment: Mapping[str, str] | None = None, text: str = ""
) -> ResolvedSettings:
    return resolve(flags or {}, environment or {}, ConfigFile(PATH, text) if text else None, "/here")


def complaint(flags: Flags | None = None, environment: Mapping[str, str] | None = None, text: str = "") -> str:
    with pytest.raises(LemonbusError) as caught:
        resolved(flags, environment, text)
    assert caught.value.failure.code is Code.INVALID_REQUEST
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_sources_all_settings_are_defaults() -> None:
    found = resolved()
    assert found.settings == Settings()
    assert set(found.origins) == set(Settings.__struct_fields__)
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
    ],
)
def test_variables_mean(name: str, text: str, value: object) -> None:
    found = resolved(environment={f"LEMONBUS_{name.upper()}": text, "HOME": "/home/me"})
    assert getattr(found.settings, name) == value


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
    ("flags", "environment", "text", "expected"),
    [
        ({"port": "x"}, {}, "", "--port: expected a whole number from 0 up to 65535, got 'x'"),
        ({"port": "70000"}, {}, "", "--port: expected a whole number from 0 up to 65535, got '70000'"),
        ({"log_level": "loud"}, {}, "", "--log-level: expected one of critical, error, warning, info, debug, trace"),
        ({"host": "127.0.0.1.5"}, {}, "", "--host: expected an IP address or a host name, got '127.0.0.1.5'"),
        ({"host": "[::1]"}, {}, "", "--host: expected an IP address or a host name, got '[::1]'"),
        ({"host": "a b"}, {}, "", "--host: expected an IP address or a host name, got 'a b'"),
        ({"runtime_dir": ""}, {}, "", "--runtime-dir: expected a text without control characters, and not an empty"),
        ({}, {}, 'host = ""', f"{PATH}:1: host: expected an IP address or a host name, got ''"),
        ({}, {}, 'state_dir = ""', f"{PATH}:1: state_dir: expected a text without control characters, and not an"),
        ({}, {}, 'llama_server = ""', f"{PATH}:1: llama_server: expected a text without control characters, and not"),
        ({"load": ["a\x00b"]}, {}, "", "--load: expected a list of texts without control characters"),
        ({}, {"LEMONBUS_GRACE": "nan"}, "", "LEMONBUS_GRACE: expected a number above 0 up to 86400, got 'nan'"),
        ({}, {"LEMONBUS_GRACE": "1e999"}, "", "LEMONBUS_GRACE: expected a number above 0"),
        ({}, {"LEMONBUS_OFFLINE": "maybe"}, "", "LEMONBUS_OFFLINE: expected true or false, got 'maybe'"),
        ({}, {"LEMONBUS_PORT": "tcp://10.0.0.1:80"}, "", "LEMONBUS_PORT: expected a whole number"),
        ({}, {"LEMONBUS_BODY_LIMIT": "9" * 30}, "", "LEMONBUS_BODY_LIMIT: expected a whole number from 1, got"),
        (
            {},
            {"LEMONBUS_LLAMACPP_ARGS": "\udcff"},
            "",
            "LEMONBUS_LLAMACPP_ARGS: expected a text without control characters",
        ),
        ({}, {"LEMONADE_API_KEY": "a\nb"}, "", "LEMONADE_API_KEY: expected letters"),
        ({}, {}, "host = '::'\nport = 'x'", f"{PATH}:2: port: expected a whole number from 0 up to 65535, got 'x'"),
        ({}, {}, "port = true", f"{PATH}:1: port: expected a whole number from 0 up to 65535, got true"),
        ({}, {}, "port = 1.5", f"{PATH}:1: port: expected a whole number"),
        ({}, {}, "[port]\nx = 1", f"{PATH}:1: port: expected a whole number"),
        ({}, {}, "load = 'A'", f"{PATH}:1: load: expected a list of texts"),
        ({}, {}, "load = [\n'A', 1]", f"{PATH}:1: load: expected a list of texts"),
        ({}, {}, "\n'prot' = 1", f"{PATH}:2: unknown setting 'prot'; did you mean port?"),
        ({}, {}, "max-loaded-models = 1", f"{PATH}:1: unknown setting 'max-loaded-models'; did you mean max_loaded_"),
        ({}, {}, "[server]\nport = 1", f"{PATH}:1: unknown setting 'server'; `lemonbus config` lists all"),
        ({}, {}, "port = 1\nport = 2", f"{PATH}: expected TOML: cannot overwrite a value (at the end, line 2)"),
        ({}, {}, "port = 1\nhost =", f"{PATH}: expected TOML: invalid value (at the end, line 2)"),
        ({}, {}, "x = " + "[" * 5000, f"{PATH}: expected TOML: a value beyond any bounds"),
        ({}, {}, "port = " + "9" * 5000, f"{PATH}: expected TOML: a value beyond any bounds"),
        ({}, {}, "backoff_first = 90", f"{PATH}:1: backoff_first (90) must not be above backoff_most (60)"),
        ({}, {"LEMONBUS_BACKOFF_MOST": "0.5"}, "", "LEMONBUS_BACKOFF_MOST: backoff_first (1) must not be above"),
    ],
)
def test_what_is_wrong_is_named(flags: Flags, environment: dict[str, str], text: str, expected: str) -> None:
    assert complaint(flags, environment, text).startswith(expected)


def test_a_wrong_key_is_not_repeated() -> None:
    assert "12345" not in complaint(text="api_key = 12345")
    assert "secret" not in complaint(environment={"LEMONBUS_API_KEY": "secret\n"})


def test_an_unknown_variable_is_a_warning_with_the_nearest_name() -> None:
    others = dict.fromkeys(
        ("LEMONBUS_URL", "LEMONBUS_CONFIG", "LEMONBUS_CONTEXT_DIR", "LEMONADE_HOST", "_LEMONBUS_X"), ""
    )
    found = resolved(environment={"LEMONBUS_PROT": "1", "LEMONBUS_ZZZ": "", "LEMONBUS_LOGLEVEL": "info", **others})
    assert found.warnings == [
        "LEMONBUS_LOGLEVEL is not a setting and is ignored; did you mean LEMONBUS_LOG_LEVEL?",
        "LEMONBUS_PROT is not a setting and is ignored; did you mean LEMONBUS_PORT?",
        "LEMONBUS_ZZZ is not a setting and is ignored; `lemonbus config` lists all settings",
    ]


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


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, field in setting_fields().items() if not field.help] == []


def test_the_defaults_in_the_readme_are_right() -> None:
    text = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([^`$]+)` \|", text, re.MULTILINE)
    assert len(rows) > 15
    assert {name: tomllib.loads(f"x = {value}")["x"] for name, value in rows} == {
        name: getattr(Settings(), name) for name, _ in rows
    }


values = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.one_of(st.integers(), st.text(max_size=5)), max_size=3),
)


@accepted_share(
    0.1,
    name=st.sampled_from(sorted(setting_fields())),
    text=st.text(max_size=30) | st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True),
)
def test_any_text_in_a_variable_is_a_value_or_an_error(name: str, text: str) -> bool:
    variable = setting_fields()[name].variable
    try:
        found = resolved(environment={variable: text})
    except LemonbusError as problem:
        assert variable in str(problem)  # noqa: PT017 - either outcome is right
        return False
    assert msgspec.json.decode(msgspec.json.encode(found.settings), type=Settings) == found.settings
    return True


DEFAULTS = st.lists(st.sampled_from(["port", "slots", "pin", "offline", "grace", "host"]), min_size=1).map(
    lambda names: {name: getattr(Settings(), name) for name in names}
)


@accepted_share(
    0.05, examples=200, table=st.dictionaries(st.sampled_from(sorted(setting_fields())), values, max_size=3) | DEFAULTS
)
def test_resolved_settings_are_the_same_in_child_processes(table: dict[str, Any]) -> bool:
    text = "\n".join(f"{name} = {_toml(value)}" for name, value in table.items())
    try:
        found = resolved(text=text or "#")
    except LemonbusError as problem:
        assert str(problem).startswith(PATH)  # noqa: PT017
        return False
    assert {name for name, origin in found.origins.items() if origin.kind == "file"} == set(table)
    assert msgspec.json.decode(msgspec.json.encode(found.settings), type=Settings) == found.settings
    return bool(table)


LINES = st.lists(
    st.sampled_from(["port = 1", "slots = 2", "pin = []", "# pin", "offline = true", "port =", "x = 1"]), max_size=3
)


@accepted_share(0.05, text=st.text(max_size=80) | LINES.map("\n".join))
def test_any_text_as_a_file_is_settings_or_an_error(text: str) -> bool:
    try:
        resolved(text=text)
    except LemonbusError as problem:
        assert str(problem).startswith(PATH)  # noqa: PT017
        return False
    assert set(tomllib.loads(text)) <= set(setting_fields())
    return True


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)


def test_invalid_releases() -> None:
    good = "llamacpp:vulkan@b1=https://x.example/y.tar.gz#sha256=" + "0" * 64
    assert resolved({"backend_releases": [good, good]}).settings.backend_releases == [good, good]
    expected = complaint(text=f'backend_releases = ["{good[:-1]}"]')
    assert f"{PATH}:1: backend_releases: expected a list of RECIPE:BACKEND@VERSION=URL#sha256=DIGEST" in expected
    assert "--release-mirror: expected an http or https address" in complaint({"release_mirror": "ftp://x"})
