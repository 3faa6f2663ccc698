"""Runs JavaScript in the Node.js that is a wheel: the modules of the page need no browser, unless they show something."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.clients.node_programs import NODE

ASSETS: Final = Path(__file__).parents[3] / "gateway" / "page" / "assets"
_PATIENCE_S: Final = 90.0
_QUIET: Final = "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON"
"""Browsers do not ask what kind a module is of, so no ``package.json`` beside the assets says it."""


def node(*arguments: str | Path, stdin: str = "") -> str:
    """Run Node.js and return its output; fails the test with all that it said if it exits with another status than 0."""
    done = subprocess.run(
        [NODE, _QUIET, *arguments], input=stdin, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def call(module: str, function: str, *arguments: Any) -> Any:
    """Return what a function of one of the page's modules returns; arguments and answer travel as JSON."""
    program = (
        f"import {{ {function} }} from {json.dumps((ASSETS / module).as_uri())};"
        "let text = ''; for await (const piece of process.stdin.setEncoding('utf8')) text += piece;"
        f"process.stdout.write(JSON.stringify({function}(...JSON.parse(text))));"
    )
    return json.loads(node("--input-type=module", "--eval", program, stdin=json.dumps(arguments)))
