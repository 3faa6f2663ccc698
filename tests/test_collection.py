"""The collection of tests is cheap: it does not import clients' packages, and only one process rewrites each module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import collection
from tests.support.clients.deferred_packages import __all__ as deferred

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = [
    "tests/compatibility/images/test_edits.py",
    "tests/compatibility/models/test_ollama_models.py",
    "tests/server/apis/test_openapi.py",
]
_PROGRAM = """
import sys, pytest

code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[2:]])
assert not code, "nothing was collected"
loaded = [name for name in sys.argv[1].split() if hasattr(sys.modules.get(name), "__file__")]
sys.exit(f"imported: {loaded}" if loaded else 0)
"""


def test_clients_are_not_imported_to_collect_the_tests_that_use_them() -> None:
    """pytest asks every object of a module whether it is a fixture, a class or a test."""
    command = [sys.executable, "-c", _PROGRAM, " ".join(deferred), *CLIENTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=100, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["t"], ["t/a/test_1.py", "t/test_2.py"]),
        (["t/a"], ["t/a/test_1.py"]),
        (["t/test_2.py"], ["t/test_2.py"]),
        (["t/test_2.py::test_x[a::b]", "t"], ["t/a/test_1.py", "t/test_2.py"]),
    ],
)
def test_only_what_is_collected_is_imported_ahead(tmp_path: Path, arguments: list[str], expected: list[str]) -> None:
    for name in ("t/a/test_1.py", "t/test_2.py", "t/conftest.py", "t/a/support.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [str(path.relative_to(tmp_path)) for path in collection.modules(tmp_path, arguments)] == expected
