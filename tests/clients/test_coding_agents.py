"""Published coding agents, started by ``lemonbus launch``: each gets an answer from a real server. CONTRIBUTING.md says how to install them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import StartServer
from tests.support.models import llama_gguf, scripted_texts
from tests.support.models.llama_gguf import ScriptedModel
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import ROOT, LemonbusServer

FOLDER: Final = os.environ.get("AGENTS", "")
"""Where the programs are."""
QUESTIONS: Final = {
    "aider": ["--no-git", "--yes-always", "--no-check-update", "--no-analytics", "--no-pretty", "--message", "Hello"],
    "claude": ["-p", "Hello"],
    "codex": ["exec", "--skip-git-repo-check", "Hello"],
    "opencode": ["run", "Hello"],
    "qwen": ["-p", "Hello"],
}
"""Agent → what makes it answer and end."""
CONTEXT: Final = 131_072
PATIENCE_S: Final = 240.0
"""An agent's own prompt may have 40,000 tokens of a tiny model."""


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    """A server with a model that says ``CHAT_TEXT`` after any prompt of an agent."""
    server = start_module_server("tiny-embed", api_key="k3y", ctx_size=CONTEXT, slots=1, gateway_workers=1)
    wide = ScriptedModel("wide", scripted_texts.CHAT_WORDS, context=CONTEXT)
    llama_gguf.write(server.models / "wide.gguf", wide)
    return server


@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("agent", QUESTIONS)
def test_an_agent_answers(agent: str, server: LemonbusServer, tmp_path: Path) -> None:
    if not os.access(Path(FOLDER, agent), os.X_OK):
        pytest.skip(f"AGENTS={FOLDER or 'FOLDER'} has no {agent}; CONTRIBUTING.md says how to install it")
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    environment = {
        "PATH": f"{FOLDER}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "LEMONBUS_URL": f"http://127.0.0.1:{server.port}",
        "LEMONBUS_API_KEY": "k3y",
    }
    words = ["launch", agent, "--model", "extra.wide", "--", *QUESTIONS[agent]]
    done = subprocess.run(
        [sys.executable, ROOT / "deploy" / "launch", *words],
        cwd=tmp_path / "project",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert " ".join(CHAT_TEXT.split()) in " ".join(done.stdout.split()), done.stderr
