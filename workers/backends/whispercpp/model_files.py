"""Identifies models of whisper.cpp by their first bytes. Pure."""

from __future__ import annotations

from typing import Final

from protocol.models import checkpoints
from workers.backends.recipe import FileHead, Identity
from workers.backends.whispercpp.descriptor import DESCRIPTOR

SUFFIXES: Final = (".bin",)


def identify(file: FileHead) -> Identity | None:
    """Return what a ggml file is, if it is one."""
    if file.name.endswith(SUFFIXES) and file.data.startswith(checkpoints.GGML_MAGIC):
        return Identity(DESCRIPTOR.recipe, (DESCRIPTOR.label,))
    return None
