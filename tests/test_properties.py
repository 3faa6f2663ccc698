"""The inputs of properties in `make test` do not depend on the modules that a process has imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = """
import importlib
from hypothesis import given, settings, strategies
from tests.support import properties

properties.register_profiles()

def inputs():
    drawn = []

    @settings(max_examples=200, database=None)
    @given(strategies.text())
    def draw(text):
        drawn.append(text)

    draw()
    return drawn

alone = inputs()
importlib.import_module("protocol.failures")
assert inputs() == alone
"""


def test_the_inputs_do_not_depend_on_what_a_process_has_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
