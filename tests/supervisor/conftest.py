"""What tests of the supervisor share: a quiet house, and the models of a machine that has none yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.settings import Settings
from supervisor.models import Models
from supervisor.places import CLOSELY_S
from tests.supervisor.lent import loaded
from tests.supervisor.stock import Make
from tests.supervisor.world import World


@pytest.fixture
def world() -> World:
    """A quiet house with one model of eight slots, used a while ago."""
    world = World(2, 8)
    world.finish(loaded(world, "a"))
    world.pass_time(10 * CLOSELY_S)
    return world


@pytest.fixture
def extra(tmp_path: Path) -> Path:
    (tmp_path / "extra").mkdir()
    return tmp_path / "extra"


@pytest.fixture
def make(tmp_path: Path, extra: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))

    def made(**settings: Any) -> Models:
        state, cache = str(tmp_path / "state"), str(tmp_path / "cache")
        return Models(Settings(state_dir=state, cache_dir=cache, extra_models_dir=str(extra), **settings))

    return made
