"""``lemonbus serve``: the supervisor that it executes, and the settings that it refuses."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.commands import serve
from tests.gateway.cli.conftest import Ends


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record what serve would execute: the command, the settings, their origins and warnings."""
    seen: list[Any] = []

    def execute(program: str, command: list[str]) -> None:
        seen.extend([program, command, json.loads(os.environ.pop("LEMONBUS_SETTINGS"))])
        seen.append(json.loads(os.environ.pop("LEMONBUS_ORIGINS")))
        seen.append(json.loads(os.environ.pop("LEMONBUS_WARNINGS")))

    monkeypatch.setattr(os, "execv", execute)
    return seen


def test_serve_becomes_the_keeper_with_the_settings(
    lemonbus: Ends, executed: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LEMONBUS_API_KEY", "k")
    monkeypatch.setenv("LEMONBUS_PROT", "1")
    words = "--host 0.0.0.0 --port 0 --load A --load B --max-loaded-models 1 --gateway-workers 3 --no-offline"
    words += " --log-level debug --log-format json --state-dir ."
    monkeypatch.chdir(tmp_path)
    assert lemonbus("serve", *words.split()) == (0, "", "")
    program, command, settings, origins, warnings = executed
    assert (program, command) == (sys.executable, [sys.executable, "-S", "-m", "supervisor.keeper"])
    expected = {"host": "0.0.0.0", "port": 0, "load": ["A", "B"], "max_loaded_models": 1, "gateway_workers": 3}
    assert expected.items() <= settings.items()
    assert settings["state_dir"] == str(tmp_path)
    assert settings["api_key"] == "k"
    assert (origins["host"], origins["api_key"]) == ("--host", "LEMONBUS_API_KEY")
    assert "cache_dir" not in origins
    assert warnings == ["LEMONBUS_PROT is not a setting and is ignored; did you mean LEMONBUS_PORT?"]
    assert not any(word == "k" for word in command)


def test_serve_refuses_a_remote_address_without_a_key(lemonbus: Ends, executed: list[Any]) -> None:
    code, out, err = lemonbus("serve", "--host", "0.0.0.0")
    assert (code, out, executed) == (2, "", [])
    assert err.count("\n") == 1
    assert "--allow-remote" in err
    assert lemonbus("serve", "--host", "0.0.0.0", "--allow-remote")[0] == 0
    assert executed


def test_there_is_no_flag_for_the_key(lemonbus: Ends) -> None:
    assert "--api-key" not in lemonbus("serve", "--help")[1]


def test_help_explains_flags_and_zero(lemonbus: Ends) -> None:
    help_text = " ".join(lemonbus("serve", "--help")[1].split())
    assert "with --allow-remote." in help_text
    assert "within --breaker-window; after more" in help_text
    assert "--grace SECONDS " in help_text
    assert "--body-limit BYTES " in help_text
    assert "[default: (*)]" in help_text
    for meaning in ("the backend's default. [default: (0)]", "the engine's own choice. [default: (0)]"):
        assert f"0: {meaning}" in help_text
    assert "params.json" in help_text
    assert ".bin files of whisper.cpp and ONNX folders" in help_text
    assert "``" not in help_text


def test_serve_needs_no_standard_output(monkeypatch: pytest.MonkeyPatch, executed: list[Any]) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # what Python does for a descriptor that is closed
    serve.command.main([], standalone_mode=False)
    assert executed
