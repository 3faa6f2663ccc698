"""What can be told about a model before its engine is started: then a load that must fail evicts nobody."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from protocol.failures import Code, Failure
from protocol.recipes import ModelSpec
from protocol.staff import Checked
from workers import gguf
from workers.backends.backend import Backend

MEMORY_FACTOR: Final = 1.2
_PART: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def parts_of(path: Path) -> list[Path]:
    """Return the files of a model that is split into several, or the one file."""
    found = _PART.search(path.name)
    if found is None:
        return [path]
    stem, count = path.name[: found.start()], int(found[2])
    return [path.with_name(f"{stem}-{number:05d}-of-{found[2]}.gguf") for number in range(1, min(count, 999) + 1)]


def available_memory(meminfo: str) -> int:
    """Return the bytes that new work may use, from the text of /proc/meminfo; 0 if it does not say."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def check(spec: ModelSpec, backend: Backend) -> tuple[Checked, int]:
    """Check files, flags and executable; return the report and the model's trained context.

    Raises ``load_failed`` for a file, ``invalid_request`` for a flag.
    """
    backend.check()
    size, context = 0, 0
    for path in [*parts_of(Path(spec.path)), *([Path(spec.mmproj)] if spec.mmproj else [])]:
        try:
            size += path.stat().st_size
            context = context or gguf.read(path).context_length
        except FileNotFoundError:
            raise _failed(spec, "its file is missing", path) from None
        except OSError as problem:
            raise _failed(spec, f"its file cannot be read ({problem.strerror})", path) from None
        except ValueError as problem:
            raise _failed(spec, str(problem), path) from None
    try:
        meminfo = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        meminfo = ""
    return Checked(need=int(size * MEMORY_FACTOR), available=available_memory(meminfo)), context


def _failed(spec: ModelSpec, why: str, path: Path) -> Exception:
    message = f"{spec.name} cannot be loaded: {why}"
    return Failure(Code.LOAD_FAILED, message, model=spec.name, detail=str(path)).raised()
