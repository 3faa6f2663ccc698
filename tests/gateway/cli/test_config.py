"""The commands that need no server: version, config and completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from gateway.cli.main import cli
from gateway.cli.settings import setting_help
from protocol.config.fields import setting_fields
from tests.gateway.cli.canned_responses import ALL, catalogue, model
from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.terminal_process import LAUNCH
from tests.gateway.fake_server import FakeServer, Reply


def test_version(lemonbus: Ends) -> None:
    code, out, _ = lemonbus("version")
    assert code == 0
    found = json.loads(lemonbus("version", "--json")[1])
    assert out == f"lemonbus {found['version']}, protocol {found['protocol']}\n"


def test_the_version_flag(lemonbus: Ends) -> None:
    assert lemonbus("--version") == lemonbus("version")


def test_version_imports_nothing_heavy() -> None:
    """A check of its speed without a clock."""
    heavy = "{'msgspec', 'zmq', 'gevent', 'falcon', 'rich', 'http.client', 'simple_websocket', 'asyncio'}"
    program = f"import sys; from gateway.cli.main import main; main(['version']); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines()[1] == "set()"


def test_config_shows_values_origins_and_no_secret(
    lemonbus: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "my.toml"
    file.write_text("\nport = 4711")
    monkeypatch.setenv("LEMONBUS_API_KEY", "hush")
    monkeypatch.setenv("LEMONBUS_PROT", "1")
    code, out, err = lemonbus("config", "--config", str(file), "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["port"] == {"value": 4711, "origin": "file", "where": f"{file}:2"}
    assert shown["host"]["origin"] == "default"
    assert shown["api_key"] == {"value": "********", "origin": "environment", "where": "LEMONBUS_API_KEY"}
    assert "LEMONBUS_PORT?" in err
    table = lemonbus("config", "--config", str(file))[1]
    assert "hush" not in out + table
    assert any(line.split() == ["port", "4711", f"{file}:2"] for line in table.splitlines())


def test_config_shows_the_directories_of_the_running_server_and_what_differs(
    lemonbus: Ends, server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    used = {
        "state_dir": {"value": "/var/lib/lemonbus", "origin": "LEMONBUS_STATE_DIR"},
        "runtime_dir": {"value": str(tmp_path), "origin": "default"},
        "port": {"value": 13305, "origin": "default"},
        "slots": {"value": 3, "origin": "/etc/lemonbus/lemonbus.toml:2"},
    }
    server.replies["GET", "/internal/settings"] = Reply({"release": "1", "settings": used})
    monkeypatch.setenv("LEMONBUS_RUNTIME_DIR", str(tmp_path))
    code, out, _ = lemonbus("config")
    assert code == 0
    rows = [line.split() for line in out.partition(f"The server at {server.url} runs with:")[2].splitlines()[2:]]
    assert [row for row in rows if row[1] != "-"] == [
        ["state_dir", '"/var/lib/lemonbus"', "LEMONBUS_STATE_DIR", "differs"],
        ["runtime_dir", f'"{tmp_path}"', "default", "the", "same"],
        ["slots", "3", "/etc/lemonbus/lemonbus.toml:2", "differs"],
    ]
    shown = json.loads(lemonbus("config", "--json")[1])
    assert shown["state_dir"]["server"] == used["state_dir"]
    server.replies["GET", "/internal/settings"] = Reply({"error": {"message": "an API key is required"}}, 401)
    code, out, err = lemonbus("config")
    assert (code, "runs with" in out) == (0, False)
    assert "the settings of the running server are unknown: an API key is required" in err


def test_config_shows_what_sections_say_with_their_lines(lemonbus: Ends, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(
        """[models."Qwen3-0.6B-GGUF"]
ttl = 300
options.ctx_size = 512
env.TOKEN = "hush"
set = { temperature = 0.5, stop = ["x"] }
[groups."a b"]
models = ["x"]
swap = true
"""
    )
    code, out, _ = lemonbus("config", "--config", str(file), "--json")
    shown = json.loads(out)
    assert code == 0
    name = 'models."Qwen3-0.6B-GGUF"'
    assert shown[f"{name}.ttl"] == {"value": 300.0, "origin": "file", "where": f"{file}:2"}
    assert shown[f"{name}.options.ctx_size"] == {"value": 512, "origin": "file", "where": f"{file}:3"}
    assert shown[f"{name}.env.TOKEN"] == {"value": "********", "origin": "file", "where": f"{file}:4"}
    assert shown[f"{name}.set.stop"] == {"value": ["x"], "origin": "file", "where": f"{file}:5"}
    assert shown['groups."a b".swap'] == {"value": True, "origin": "file", "where": f"{file}:8"}
    table = lemonbus("config", "--config", str(file))[1]
    assert "hush" not in out + table
    assert any(line.split() == [f"{name}.ttl", "300.0", f"{file}:2"] for line in table.splitlines())


@pytest.mark.parametrize("padding", [0, 200])
def test_config_names_the_line_of_what_no_recipe_takes(lemonbus: Ends, tmp_path: Path, padding: int) -> None:
    """Also of a configuration that is too large for the environment."""
    file = tmp_path / "my.toml"
    many = "".join(f"[models.m{number}]\nsystem_prompt = '{'x' * 2000}'\n" for number in range(padding))
    file.write_text(f"{many}[defaults.llamacpp.options]\nctx_size = -5")
    done = subprocess.run(
        [sys.executable, LAUNCH, "config", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    where = f"{file}:{2 * padding + 2}: defaults.llamacpp.options.ctx_size: ctx_size must be from -1 up to"
    assert done.stderr.startswith(f"lemonbus: {where}")


def test_bad_configuration_ends_with_2(lemonbus: Ends, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("port = 'x'")
    for command in ("config", "serve"):
        code, out, err = lemonbus(command, "--config", str(file))
        assert (code, out) == (2, "")
        assert err == f"lemonbus: {file}:1: port: expected a whole number from 0 up to 65535, got 'x'\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, lemonbus: Ends) -> None:
    code, out, _ = lemonbus("completion", shell)
    assert code == 0
    assert "_LEMONBUS_COMPLETE" in out


def test_completion_knows_commands_choices_and_models(server: FakeServer) -> None:
    server.replies[ALL] = catalogue(model("Tiny", aliases=["gpt-4o"]), model("Other"))

    asked = {"_LEMONBUS_COMPLETE": "bash_complete", "COMP_WORDS": "lemonbus load T", "COMP_CWORD": "2"}
    environment = {**os.environ, **asked}
    done = subprocess.run([sys.executable, LAUNCH], env=environment, capture_output=True, timeout=30, check=True)
    assert done.stdout == b"plain,Tiny\n", "as a shell asks"

    def complete(*words: str) -> list[str]:
        completion = BashComplete(cli, {}, "lemonbus", "_LEMONBUS_COMPLETE")
        return [item.value for item in completion.get_completions(list(words[:-1]), words[-1])]

    assert complete("lo") == ["load", "logs"]
    assert complete("load", "T") == ["Tiny"]
    assert complete("pin", "g") == ["gpt-4o"]
    assert complete("serve", "--log-level", "tr") == ["trace"]
    assert complete("load", "--url", "http://127.0.0.1:1", "T") == []
    assert complete("--url", "http://127.0.0.1:1", "load", "T") == []


def test_every_setting_says_what_it_is_for() -> None:
    helps = setting_help()
    assert [name for name in setting_fields() if not helps.get(name)] == []
