"""Images of a chat: files as parts of a message, and paths of image files that were dropped into a prompt."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any, Final

from gateway.cli.exit_codes import CommandError

MAX_BYTES: Final = 64 * 1024 * 1024
"""Size limit of a file. The server has limits of its own, on the decoded image and on the request."""
_TYPES: Final = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp", ".bmp": "bmp"}
_WORD: Final = re.compile(r"""'(?P<single>[^'\n]+)'|"(?P<double>[^"\n]+)"|(?P<bare>(?:\\.|[^\s'"\\])+)""")


def image_part(path: Path) -> dict[str, Any]:
    """Return a file as the part of a message; raises ``CommandError`` if it cannot be read."""
    try:
        if not path.is_file():
            raise CommandError(f"{path} is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise CommandError(f"{path}: {problem.strerror}") from problem
    if len(content) > MAX_BYTES:
        raise CommandError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    kind = _TYPES.get(path.suffix.lower(), "png")  # the server looks at the bytes
    url = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def without_images(prompt: str) -> tuple[str, list[Path]]:
    """Return a prompt without the paths of image files that it names, and these files.

    Terminals insert the path of a file that is dropped on them, with quotes or backslashes if it needs them. Only an
    absolute path, or one that begins with a dot or ``~/``, counts, and only if the file exists.
    """
    found: list[Path] = []

    def replacement(word: re.Match[str]) -> str:
        text = word["single"] or word["double"] or re.sub(r"\\(.)", r"\1", word["bare"])
        if not text.startswith(("/", "./", "../", "~/")) or Path(text).suffix.lower() not in _TYPES:
            return word[0]
        path = Path(text).expanduser()
        if not path.is_file():
            return word[0]
        found.append(path)
        return ""

    rest = _WORD.sub(replacement, prompt)
    return (rest.strip(), found) if found else (prompt, [])
