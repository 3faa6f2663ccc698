"""``lemonbus launch``: what each coding agent is told, by programs of their names that print what they get."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.api.openai.models import model_object
from gateway.cli.coding_agents import AGENTS
from protocol.messages.models import ModelEntry
from tests.gateway.cli.canned_responses import ALL, catalogue, model
from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.terminal_process import LAUNCH
from tests.gateway.fake_server import FakeServer, Reply

LOAD = ("POST", "/v1/load")
A: Any = {"downloaded": True, "context_length": 131_072, "max_context_window": 131_072}
"""A model that is large enough for every agent."""
INHERITED = {
    "ANTHROPIC_API_KEY": "of another maker",
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "LEMONBUS_ADMIN_API_KEY": "master",
    "LEMONBUS_API_KEY": "secret",
}
FORBIDDEN = {"ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK"}
"""Variables of these that the agent that would heed them must not see."""


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with all agents. Each prints its arguments and its environment."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for agent in AGENTS.values():
        program = folder / agent.program
        program.write_text(
            f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ)]))\nsys.exit(7)\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def offer(server: FakeServer, *entries: ModelEntry) -> None:
    """Have the server know these models."""
    server.replies[ALL] = catalogue(*entries)
    for entry in entries:
        shown = msgspec.to_builtins(model_object(entry, entry.id, whole=True))
        server.replies["GET", f"/v1/models/{entry.id}"] = Reply(shown)


def launched(*words: str) -> tuple[list[str], dict[str, str]]:
    """Run the command in a process of its own, which becomes the agent; return what that was given."""
    done = subprocess.run(
        [sys.executable, LAUNCH, "launch", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 7, done.stderr  # the exit code is the agent's
    arguments, environment = json.loads(done.stdout)
    return arguments, environment


def codex_settings(url: str) -> list[str]:
    provider = f'{{name="lemonbus",base_url="{url}/v1",env_key="LEMONBUS_API_KEY",wire_api="responses"}}'
    settings = ['model="A"', 'model_provider="lemonbus"', f"model_providers.lemonbus={provider}"]
    return [word for each in [*settings, "model_context_window=131072"] for word in ("-c", each)]


def opencode_configuration(url: str) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "lemonbus",
        "options": {"baseURL": f"{url}/v1", "apiKey": "{env:LEMONBUS_API_KEY}"},
        "models": {"A": {"name": "A", "limit": {"context": 131072, "output": 32000}}},
    }
    return json.dumps({"provider": {"lemonbus": provider}, "model": "lemonbus/A", "small_model": "lemonbus/A"})


def expected_start(name: str, url: str) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and the variables that an agent must get."""
    match name:
        case "claude":
            models = dict.fromkeys(
                [
                    "ANTHROPIC_MODEL",
                    "ANTHROPIC_DEFAULT_OPUS_MODEL",
                    "ANTHROPIC_DEFAULT_SONNET_MODEL",
                    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
                    "CLAUDE_CODE_SUBAGENT_MODEL",
                ],
                "A",
            )
            limits = {"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "131072", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "32000"}
            to = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "secret", "CLAUDE_CODE_ATTRIBUTION_HEADER": "0"}
            return [], models | limits | to
        case "codex":
            return codex_settings(url), {"LEMONBUS_API_KEY": "secret"}
        case "opencode":
            configuration = opencode_configuration(url)
            return [], {"LEMONBUS_API_KEY": "secret", "OPENCODE_CONFIG_CONTENT": configuration}
        case "aider":
            to = {"AIDER_OPENAI_API_BASE": f"{url}/v1", "AIDER_OPENAI_API_KEY": "secret", "AIDER_MODEL": "openai/A"}
            return [], {**to, "AIDER_WEAK_MODEL": "openai/A", "AIDER_MAX_CHAT_HISTORY_TOKENS": "32000"}
        case "qwen":
            to = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "secret", "OPENAI_MODEL": "A"}
            return ["--auth-type", "openai"], to
    raise AssertionError(name)


@pytest.mark.usefixtures("agents")
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_gets_address_key_model_and_context(
    name: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offer(server, model("A", **A))
    for variable, value in INHERITED.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")
    before = sorted(tmp_path.rglob("*"))
    arguments, environment = launched(name, "--model", "A", "--", "fix it", "--now")
    wanted_arguments, wanted = expected_start(name, server.url)
    assert arguments == [*wanted_arguments, "fix it", "--now"]
    assert {variable: environment.get(variable) for variable in wanted} == wanted
    assert "LEMONBUS_ADMIN_API_KEY" not in environment
    assert environment["PYTHONPATH"] == "/of/the/user"  # not our packages: an agent may be a Python program
    assert name != "claude" or not FORBIDDEN & environment.keys()
    assert sorted(tmp_path.rglob("*")) == before  # nothing was written
    assert server.asked[-1][3]["Authorization"] == "Bearer master"


@pytest.mark.usefixtures("agents")
@pytest.mark.parametrize("name", AGENTS)
def test_what_print_shows_does_the_same(name: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(server, model("A", **A))
    for variable, value in INHERITED.items():
        monkeypatch.setenv(variable, value)
    words = [name, "--model", "A", "--", "it's $HOME"]
    printed = subprocess.run(
        [sys.executable, LAUNCH, "launch", "--print", *words], capture_output=True, text=True, timeout=60, check=True
    )
    shell = subprocess.run(["sh", "-c", printed.stdout], capture_output=True, text=True, timeout=60, check=False)
    arguments, environment = json.loads(shell.stdout)
    started_with, variables = launched(*words)
    assert arguments == started_with
    own = {"PWD", "OLDPWD", "_", "SHLVL"}  # the shell's
    assert {name: value for name, value in environment.items() if name not in own} == {
        name: value for name, value in variables.items() if name not in own
    }


def test_a_missing_agent_is_named_with_the_command_that_installs_it(
    server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    offer(server, model("A", **A))
    install = "npm install -g @openai/codex"
    assert lemonbus("launch", "codex") == (1, "", f"lemonbus: codex is not installed. To install it: {install}\n")
    code, out, _ = lemonbus("launch", "codex", "--json")
    shown = json.loads(out)
    assert (code, shown["program"], shown["install"], shown["model"], shown["context"]) == (
        0, None, install, "A", 131_072,
    )  # fmt: skip
    assert shown["command"][0] == "codex"
    assert shown["environment"] == {"LEMONBUS_API_KEY": "lemonbus"}  # the server needs no key, the agent does
    assert lemonbus("launch", "emacs")[0] == 2


@pytest.mark.usefixtures("agents")
def test_a_key_of_an_administrator_is_only_passed_with_a_warning(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(server, model("A", **A))
    monkeypatch.setenv("LEMONBUS_ADMIN_API_KEY", "master")
    done = subprocess.run(
        [sys.executable, LAUNCH, "launch", "qwen"], capture_output=True, text=True, timeout=60, check=False
    )
    assert json.loads(done.stdout)[1]["OPENAI_API_KEY"] == "master"
    assert "qwen gets the key of an administrator" in done.stderr
    assert "lemonbus keys add qwen --scope inference" in done.stderr


def loads(most: int) -> Any:
    """Return the reply of a server that can load A with a context of up to this number of tokens."""
    plan: Any = {"decision": "load", "slots": 1, "places": [], "parts": {}, "measured": False, "evictions": []}
    answer = {"status": "success", "message": "", "checkpoint": "", "recipe": "", "model_name": "A", "model": "A"}

    def reply(request: Any) -> Reply:
        context = request.get("ctx_size", 4096)
        refusal = {"status": 507, "code": "insufficient_memory", "message": "too large"} if context > most else None
        shown = {"plan": {**plan, "context": context, "refusal": refusal}} if request.get("dry_run") else {}
        return Reply({**answer, "context": context, **shown})

    return reply


@pytest.mark.usefixtures("agents")
def test_a_context_that_is_too_small_is_said_and_can_be_made_larger(server: FakeServer, lemonbus: Ends) -> None:
    offer(server, model("A", downloaded=True, context_length=8192, max_context_window=131_072))
    server.replies[LOAD] = loads(65_536)
    code, _, err = lemonbus("launch", "codex")
    assert (code, err.count("\n")) == (1, 1)
    assert "A has a context of 8192 tokens, and codex needs 32768: `--context 32768` loads the model with more" in err
    code, _, err = lemonbus("launch", "codex", "--context", "100000")
    assert (code, err) == (1, "lemonbus: A cannot be loaded with a context of 100000 tokens: too large\n")
    code, out, _ = lemonbus("launch", "codex", "--context", "40000", "--print")
    assert (code, "model_context_window=40000" in out) == (0, True)
    assert all(request[2]["dry_run"] for request in server.asked if request[1] == LOAD[1])  # nothing was loaded
    assert "model_context_window=40000" in launched("codex", "--context", "40000")[0]
    assert server.last() == {"model_name": "A", "ctx_size": 40_000}
    assert "model_context_window=8192" in launched("codex", "--context", "8000", "--force")[0]
    # It has that many already: nothing is loaded again.
    assert server.asked[-1][:2] == ALL


def test_a_model_that_was_trained_for_less_cannot_be_made_larger(server: FakeServer, lemonbus: Ends) -> None:
    offer(server, model("A", downloaded=True, context_length=32_768, max_context_window=8192))
    code, _, err = lemonbus("launch", "codex", "--json")
    assert (code, "the model was trained for 8192 tokens: choose another" in err) == (1, True)


def test_a_context_that_the_list_does_not_have_is_asked_for(server: FakeServer, lemonbus: Ends) -> None:
    offer(server, model("A", downloaded=True))
    server.replies[LOAD] = loads(65_536)
    code, _, err = lemonbus("launch", "aider", "--json")
    assert (code, "A has a context of 4096 tokens, and aider needs 8192" in err) == (1, True)
    assert server.last()["dry_run"]


def test_the_model_is_the_only_one_that_can_be_meant(server: FakeServer, lemonbus: Ends) -> None:
    def chosen() -> Any:
        code, out, err = lemonbus("launch", "aider", "--json")
        return json.loads(out)["model"] if code == 0 else (code, err)

    others = [model("away", **{**A, "downloaded": False}), model("drawn", **A)]
    others[1] = msgspec.structs.replace(others[1], type="image")
    offer(server, *others)
    assert "no language model is downloaded" in chosen()[1]
    offer(server, *others, model("A", **A))
    assert chosen() == "A"
    offer(server, *others, model("A", **A), model("B", **A))
    code, err = chosen()
    assert code == 2
    assert "Name one of the models with --model: A, B." in err
    offer(server, *others, model("A", **A), model("B", **A, loaded=True))
    assert chosen() == "B"
    code, _, err = lemonbus("launch", "aider", "--model", "drawn", "--json")
    assert code == 1
    assert "drawn does not chat: its type is image" in err
