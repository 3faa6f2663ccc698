"""``python -m supervisor.imports SOURCE [PATH]``: prints the plan of an import as JSON, or says on stderr why there is none.

It reads files, and changes nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from protocol.config.import_plan import ImportPlan
from protocol.failures import LemonbusError
from supervisor.imports import checked_plan, lemonade, llama_swap, lm_studio, ollama, ollama_store

EXIT_USAGE = 2


def make_plan(source: str, path: str) -> ImportPlan:
    """Return the checked plan of a source; raises ``invalid_request``. ``path``: empty for where the source keeps its files."""
    given = Path(os.path.abspath(Path(path).expanduser())) if path else None  # noqa: PTH100 - links stay as they are
    environment = dict(os.environ)
    match source:
        case "ollama":
            folder = given or ollama_store.default_folder(environment)
            found = ollama.plan(folder, ollama_store.read_store(folder))
        case "llama-swap":
            file = given or Path("config.yaml").absolute()
            found = llama_swap.plan(file, llama_swap.read(file), environment)
        case "lemonade":
            found = lemonade.plan(lemonade.read_folder(given, environment))
        case _:
            folder = given or lm_studio.default_folder(environment)
            found = lm_studio.plan(folder, lm_studio.read_models(folder))
    checked_plan.remove_refused(found)
    found.left_out.sort()
    return found


def main(words: list[str]) -> int:
    """Print the plan; return the exit code."""
    try:
        found = make_plan(*words)
    except LemonbusError as problem:
        sys.stderr.write(f"{problem}\n")
        return EXIT_USAGE
    except OSError as problem:  # a folder of another user, for example
        sys.stderr.write(f"{problem.filename}: {problem.strerror}\n")
        return EXIT_USAGE
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
