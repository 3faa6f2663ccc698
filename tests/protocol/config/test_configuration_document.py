"""docs/configuration.md is true: its example is a valid configuration, and it and README name every key of the sections."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from protocol.config.model_settings import GroupSettings, ModelSettings, RemoteSettings
from protocol.config.settings import SECTIONS
from supervisor.models.options.settings_check import check_settings
from tests.protocol.config.resolved_settings import complaint, resolved

EITHER_OR = {"urls"}
"""Keys that a section cannot have beside another one of the example."""
ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "configuration.md").read_text()


def example(text: str) -> str:
    return next(block for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "[models." in block)


@pytest.mark.parametrize("file", ["docs/configuration.md", "README.md"])
def test_the_example_is_valid(file: str) -> None:
    settings = resolved(text=example((ROOT / file).read_text())).settings
    assert all(getattr(settings, section) for section in SECTIONS)
    check_settings(settings)


def test_the_example_has_every_key() -> None:
    settings = resolved(text=example(DOCUMENT)).settings
    assert all(isinstance(model, ModelSettings) for model in settings.models.values())
    assert all(isinstance(group, GroupSettings) for group in settings.groups.values())
    given = set(re.findall(r"^(\w+) = ", example(DOCUMENT), re.MULTILINE))
    assert {
        *ModelSettings.__struct_fields__,
        *GroupSettings.__struct_fields__,
        *RemoteSettings.__struct_fields__,
    } - EITHER_OR <= given


def test_every_key_is_explained() -> None:
    for kind in (ModelSettings, GroupSettings, RemoteSettings):
        assert [field.name for field in msgspec.structs.fields(kind) if f"`{field.name}`" not in DOCUMENT] == []


def test_the_message_of_the_document_is_the_real_one() -> None:
    line = next(line for line in DOCUMENT.splitlines() if line.startswith("lemonbus: /etc/"))
    text = "\n" * 5 + '[models."Qwen3-0.6B-GGUF"]\nttl = "5m"'
    assert f"lemonbus: {complaint(text=text)}" == line
