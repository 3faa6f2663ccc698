"""The commands of ``docs/getting-started.md`` about models, with a real server. ``make bare`` runs those of the installation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.configuration_file import ConfiguredServer
from tests.support.documented_commands import commands, make_home, run_command, run_commands
from tests.support.models.tiny_models import CHAT_TEXT, TALE_TEXT, tiny_models

PAGE: Final = "docs/getting-started.md"
MODELS: Final = tiny_models() / "models"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def server() -> Iterator[ConfiguredServer]:
    """Its only model has the name of the one that ``make serve`` fetches."""
    with ConfiguredServer("none", gateway_workers=1) as server:
        shutil.copy(MODELS / "tiny-chat.gguf", server.models / "small.gguf")
        server.configure(sections=f'\n[models.SmolLM2-135M-Instruct-GGUF]\npath = "{server.models / "small.gguf"}"\n')
        server.reload()
        yield server


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_first_model(server: ConfiguredServer, tmp_path: Path) -> None:
    path, listed, spoken, answer = run_commands(server, make_home(tmp_path), commands(PAGE, "A model in five minutes"))
    assert path == ""
    assert "SmolLM2-135M-Instruct-GGUF" in listed
    assert spoken.strip() == CHAT_TEXT.strip()
    assert json.loads(answer)["choices"][0]["message"]["content"] == CHAT_TEXT


def test_files_of_your_own(server: ConfiguredServer, tmp_path: Path) -> None:
    home = make_home(tmp_path)
    (home / "models").mkdir()
    (home / "Downloads").mkdir()
    shutil.copy(MODELS / "tiny-tale.gguf", home / "models" / "My-Model-Q4_K_M.gguf")
    shutil.copy(MODELS / "tiny-chat.gguf", home / "Downloads" / "another.gguf")
    _, listed, tale, _, spoken = run_commands(server, home, commands(PAGE, "Files of your own"))
    assert "extra.My-Model-Q4_K_M" in listed
    assert (tale.strip(), spoken.strip()) == (TALE_TEXT.strip(), CHAT_TEXT.strip())
    shutil.copy(MODELS / "tiny-chat.gguf", home / "models" / "later.gguf")
    assert "extra.later" in run_command(server, home, "lemonbus list").stdout
