"""The page at ``/docs``: one file with its script and style inside, and a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent
_SCRIPT: Final = "/*script*/"
_STYLE: Final = "/*style*/"


def docs_page() -> tuple[bytes, str]:
    """Return the page and its ``Content-Security-Policy``."""
    page, script, style = (_read(name) for name in ("docs.html", "docs.js", "docs.css"))
    policy = [
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return page.replace(_STYLE, style).replace(_SCRIPT, script).encode(), "; ".join(policy)


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the hash of an inline script or style in a policy's form."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
