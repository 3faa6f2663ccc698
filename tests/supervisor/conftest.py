"""What tests of the supervisor share: a registry of models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from protocol.config.settings import Settings
from supervisor.models.catalogues import extra_models
from supervisor.models.registry import ModelRegistry
from tests.supervisor.models.model_files import MakeModels


@pytest.fixture
def extra(tmp_path: Path) -> Path:
    (tmp_path / "extra").mkdir()
    return tmp_path / "extra"


@pytest.fixture
def make(tmp_path: Path, extra: Path, monkeypatch: pytest.MonkeyPatch) -> MakeModels:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(extra_models, "_SLOW_CHECK_S", math.inf)  # a busy machine must not delay a test's changes

    def made(**settings: Any) -> ModelRegistry:
        state, cache = str(tmp_path / "state"), str(tmp_path / "cache")
        return ModelRegistry(Settings(state_dir=state, cache_dir=cache, extra_models_dir=str(extra), **settings))

    return made
