"""Checks a model before its engine is started, so that a load that must fail evicts no other model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from protocol.failures import Code, Failure
from protocol.messages.peers import ModelChecked
from protocol.models.recipes import ModelSpec
from workers.backends.base import Backend, ModelFacts

MEMORY_FACTOR: Final = 1.2
"""Memory that a model needs, as a multiple of the size of its files."""


def available_memory(meminfo: str) -> int:
    """Return the bytes that new work may use, from the text of /proc/meminfo; 0 if they are not in it."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def check_model(spec: ModelSpec, backend: Backend) -> tuple[ModelChecked, ModelFacts]:
    """Check files, flags and executable; return the report and what the files' headers contain.

    Raises ``model_unusable`` for a file, ``invalid_request`` for a flag.
    """
    backend.check()
    try:
        facts = backend.examine()
    except FileNotFoundError as problem:
        raise _unusable(spec, "its file is missing", problem.filename) from None
    except OSError as problem:
        raise _unusable(spec, f"its file cannot be read ({problem.strerror})", problem.filename) from None
    except ValueError as problem:
        raise _unusable(spec, str(problem), spec.path) from None
    try:
        meminfo = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        meminfo = ""
    return ModelChecked(need=int(facts.size * MEMORY_FACTOR), available=available_memory(meminfo)), facts


def _unusable(spec: ModelSpec, reason: str, path: object) -> Exception:
    message = f"{spec.name} cannot be loaded: {reason}"
    return Failure(Code.MODEL_UNUSABLE, message, model=spec.name, detail=str(path or spec.path)).raised()
