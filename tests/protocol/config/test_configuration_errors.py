"""Errors about wrong settings; any text is a value or an error."""

from __future__ import annotations

import tomllib
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from protocol.config.fields import setting_fields
from protocol.config.resolver import (
    Flags,
)
from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from tests.protocol.config.resolved_settings import PATH, complaint, resolved
from tests.support.accepted_share import accepted_share


@pytest.mark.parametrize(
    ("flags", "environment", "text", "expected"),
    [
        ({"port": "x"}, {}, "", "--port: expected a whole number from 0 up to 65535, got 'x'"),
        ({"port": "70000"}, {}, "", "--port: expected a whole number from 0 up to 65535, got '70000'"),
        ({"log_level": "loud"}, {}, "", "--log-level: expected one of critical, error, warning, info, debug, trace"),
        ({"host": "127.0.0.1.5"}, {}, "", "--host: expected an IP address or a host name, got '127.0.0.1.5'"),
        ({"host": "[::1]"}, {}, "", "--host: expected an IP address or a host name, got '[::1]'"),
        ({"host": "a b"}, {}, "", "--host: expected an IP address or a host name, got 'a b'"),
        ({"runtime_dir": ""}, {}, "", "--runtime-dir: expected a non-empty text without control characters"),
        ({}, {}, 'host = ""', f"{PATH}:1: host: expected an IP address or a host name, got ''"),
        ({}, {}, 'state_dir = ""', f"{PATH}:1: state_dir: expected a non-empty text without control characters"),
        ({}, {}, 'llama_server = ""', f"{PATH}:1: llama_server: expected a non-empty text without control characters"),
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
        ({}, {"LEMONADE_API_KEY": "a\nb"}, "", "LEMONADE_API_KEY: expected printable ASCII characters"),
        ({}, {}, "host = '::'\nport = 'x'", f"{PATH}:2: port: expected a whole number from 0 up to 65535, got 'x'"),
        ({}, {}, "port = 'auto'", f"{PATH}:1: port: expected a whole number from 0 up to 65535, got 'auto'"),
        (
            {},
            {},
            "ctx_size = 'all'",
            f"{PATH}:1: ctx_size: expected a whole number from -1 up to 16777216, or \"auto\", got 'all'",
        ),
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
    inner = resolved(environment={"LEMONBUS_BOOTS": "1"}).warnings
    assert inner == ["LEMONBUS_BOOTS is not a setting and is ignored; did you mean LEMONBUS_SLOTS?"]
    assert found.warnings == [
        "LEMONBUS_LOGLEVEL is not a setting and is ignored; did you mean LEMONBUS_LOG_LEVEL?",
        "LEMONBUS_PROT is not a setting and is ignored; did you mean LEMONBUS_PORT?",
        "LEMONBUS_ZZZ is not a setting and is ignored; `lemonbus config` lists all settings",
    ]


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


@accepted_share(0.02, examples=200, text=st.text(max_size=80) | LINES.map("\n".join))
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
