"""The tiny models are made once, completely, and are the same each time."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.support.clients.http_client import run_concurrently
from tests.support.models.tiny_models import prompt_of, tiny_models, write_all


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.gguf")
    }


def test_they_are_made_once_and_always_the_same(tmp_path: Path) -> None:
    folders = run_concurrently(4, lambda _: tiny_models())
    assert len(set(folders)) == 1
    write_all(tmp_path)
    assert digests(tmp_path) == digests(folders[0])
    assert "adapters/tiny-lora.gguf" in digests(tmp_path)


def test_no_prompt_is_like_another() -> None:
    assert len(prompt_of(100)) == 100
    assert prompt_of(100)[:16] != prompt_of(100)[:16]
