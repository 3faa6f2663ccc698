"""The commands of ``docs/migrating.md``, chapter by chapter, with the stores of other servers and a real server."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.configuration_file import ConfiguredServer
from tests.support.documented_commands import PATIENCE_S, commands, make_home, run_command, run_commands
from tests.support.models.tiny_models import CHAT_TEXT, TALE_TEXT, tiny_models
from tests.support.ollama_store import OllamaStore
from tests.support.server import ROOT

PAGE: Final = "docs/migrating.md"
MODELS: Final = tiny_models() / "models"


@pytest.fixture(scope="module")
def server() -> Iterator[ConfiguredServer]:
    with ConfiguredServer(gateway_workers=1) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path)


def answer_of(printed: str) -> str:
    """What a model answer_of, in an answer of either API."""
    answer: dict[str, Any] = json.loads(printed)
    message = answer["message"] if "message" in answer else answer["choices"][0]["message"]
    return str(message["content"])


def make_ollama(home: Path) -> None:
    store = OllamaStore(home / ".ollama" / "models")
    for name in ("llama3.2", "llama3.2:3b"):
        store.add(name, MODELS / "tiny-chat.gguf", params={"num_ctx": 2048, "stop": ["<|eot_id|>"]})


def make_llama_swap(home: Path) -> None:
    """A configuration whose llama-server is a program of this machine: ours, under that name."""
    program = home / "bin" / "llama-server"
    program.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m workers.engine_servers.llama_server "$@"\n')
    program.chmod(0o755)
    file = MODELS / "tiny-tale.gguf"
    (home / "config.yaml").write_text(
        f"models:\n  qwen:\n    cmd: {program} --port ${{PORT}} -m {file} -c 2048 -np 2 -t 1\n    ttl: 600\n"
    )


def make_lemonade(home: Path) -> None:
    snapshot = home / ".cache" / "huggingface" / "hub" / "models--owner--tiny-GGUF" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "Tiny-Q4_0.gguf").symlink_to(MODELS / "tiny-chat.gguf")
    folder = home / ".cache" / "lemonade"
    folder.mkdir()
    item = {"checkpoint": "owner/tiny-GGUF:Q4_0", "recipe": "llamacpp", "labels": ["custom"]}
    (folder / "user_models.json").write_text(json.dumps({"Tiny": item}))
    (folder / "recipe_options.json").write_text(json.dumps({"user.Tiny": {"ctx_size": 1024}}))


def make_lm_studio(home: Path) -> None:
    folder = home / ".lmstudio" / "models" / "lmstudio-community" / "Tiny-1B-GGUF"
    folder.mkdir(parents=True)
    (folder / "Tiny-1B-Q4_K_M.gguf").symlink_to(MODELS / "tiny-tale.gguf")


def make_localai(home: Path) -> None:
    (home / "models").mkdir()
    (home / "models" / "luna.gguf").symlink_to(MODELS / "tiny-chat.gguf")


CHAPTERS: Final[dict[str, tuple[Callable[[Path], None], str, str]]] = {
    "From Ollama": (make_ollama, "llama3.2", CHAT_TEXT),
    "From llama-swap": (make_llama_swap, "qwen", TALE_TEXT),
    "From Lemonade": (make_lemonade, "user.Tiny", CHAT_TEXT),
    "From LM Studio": (make_lm_studio, "tiny-1b", TALE_TEXT),
    "From LocalAI": (make_localai, "gpt-4", CHAT_TEXT),
}
"""Chapter → what makes the other server's files, a model that is there afterwards, and its answer."""


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.timeout(4 * PATIENCE_S)
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_commands_of_a_chapter(server: ConfiguredServer, home: Path, chapter: str) -> None:
    make, model, text = CHAPTERS[chapter]
    make(home)
    *_, listed, answer = printed = run_commands(server, home, commands(PAGE, chapter))
    if chapter == "From Ollama":
        listed, answer = printed[-3], printed[-2]
        assert answer_of(printed[-1]) == text
    assert re.search(rf"^{model.removeprefix('user.')} ", listed, re.MULTILINE)
    assert answer_of(answer) == text
    again = f"lemonbus import {chapter.removeprefix('From ').lower().replace(' ', '-')}"
    if chapter != "From LocalAI":
        before = server.file.read_text()
        done = run_command(server, home, f"{again} {'config.yaml' if 'swap' in again else ''} --json")
        assert done.returncode == 0, done.stderr
        shown = json.loads(done.stdout)
        assert {step["change"] for step in shown["sections"]} == {"unchanged"}
        assert (shown["change"], shown["missing"], server.file.read_text()) == ("unchanged", [], before)
    section = server.client.get(f"/internal/configuration?model={model}", **server.admin_headers).json()
    assert section["files"], "the file of the other server"


def test_every_source_has_a_chapter_and_every_chapter_a_test() -> None:
    chapters = re.findall(r"^## (.*)$", (ROOT / PAGE).read_text(), re.MULTILINE)
    assert chapters == list(CHAPTERS)
