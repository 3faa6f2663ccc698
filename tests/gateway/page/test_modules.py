"""The tests of the page's modules, each a file for Node.js's own test runner."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.gateway.page.node import node

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*.test.mjs")))
def test_module(name: str) -> None:
    output = node("--test", "--test-reporter=tap", HERE / name)
    passed = re.search(r"^# pass (\d+)$", output, re.MULTILINE)
    assert passed, output
    assert int(passed[1]), output
