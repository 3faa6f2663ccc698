"""Tiny models of ONNX Runtime GenAI, which are folders: written where they are wanted, in some hundredths of a second.

============== ===================================================================================
tiny-oga       says ``RECITAL`` and stops, whatever it is asked
tiny-oga-loop  ``RECITAL`` over and over: ends by ``max_tokens``, by its context, or by being stopped
tiny-oga-plain tiny-oga without a chat template, and with a token before every text
============== ===================================================================================
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.house.tiny import genai
from tests.house.tiny.genai import Tale

_WORDS: Final = [
    "One",
    "folder",
    "full",
    "of",
    "numbers",
    "knows",
    "some",
    "plain",
    "words",
    "and",
    "says",
    "them",
    "in",
    "this",
    "order",
    "to",
    "every",
    "guest",
    ".",
]
RECITAL: Final = "".join(f" {word}" for word in _WORDS)
CONTEXT: Final = 4096

_TALES: Final = {
    tale.name: tale
    for tale in (
        Tale("tiny-oga", _WORDS, context=CONTEXT),
        Tale("tiny-oga-loop", _WORDS, endless=True, context=16_384, feed_forward=2048),
        Tale("tiny-oga-plain", _WORDS, template="", begins=True, context=CONTEXT),
    )
}


def put_folder(parent: Path, name: str, called: str = "") -> Path:
    """Write a model into a folder of ``parent`` that has its name, or is ``called`` otherwise; return the folder."""
    folder = parent / (called or name)
    genai.write(folder, _TALES[name])
    return folder


def files_of(name: str, parent: Path) -> dict[str, bytes]:
    """Return a model as the files of a repository; ``parent`` is used to write them."""
    folder = put_folder(parent, name)
    return {path.name: path.read_bytes() for path in folder.iterdir()}
