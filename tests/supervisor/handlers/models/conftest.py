"""A harness for descriptions, with two models in the extra models directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.supervisor.handlers.models.description_harness import DescriptionHarness
from tests.supervisor.models.model_files import MakeModels
from tests.support.models.tiny_models import tiny_models


@pytest.fixture
def harness(make: MakeModels, extra: Path) -> DescriptionHarness:
    for name in ("tiny-chat.gguf", "tiny-embed.gguf"):
        (extra / name).symlink_to(tiny_models() / "models" / name)
    return DescriptionHarness(make())
