"""Tiny models of ONNX Runtime GenAI, which are folders: written where they are wanted, in some hundredths of a second.

============== ===================================================================================
tiny-oga       says ``GENAI_TEXT`` and stops, whatever it is asked
tiny-oga-loop  ``GENAI_TEXT`` over and over: ends by ``max_tokens``, by its context, or by being stopped
tiny-oga-context says tokens that depend on all tokens before them, and goes on as the one above
tiny-oga-plain tiny-oga without a chat template, and with a token before every text
============== ===================================================================================
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.models import genai_writer
from tests.support.models.genai_writer import ScriptedGenaiModel

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
GENAI_TEXT: Final = "".join(f" {word}" for word in _WORDS)
CONTEXT: Final = 4096

_SCRIPTED_MODELS: Final = {
    scripted.name: scripted
    for scripted in (
        ScriptedGenaiModel("tiny-oga", _WORDS, context=CONTEXT),
        ScriptedGenaiModel("tiny-oga-loop", _WORDS, endless=True, context=16_384, feed_forward=2048),
        ScriptedGenaiModel("tiny-oga-context", _WORDS, endless=True, context=16_384, feed_forward=2048, attention=3.0),
        ScriptedGenaiModel("tiny-oga-plain", _WORDS, template="", begins=True, context=CONTEXT),
    )
}


def write_genai_model(parent: Path, name: str, called: str = "") -> Path:
    """Write a model into a folder of ``parent`` that has its name, or is ``called`` otherwise; return the folder."""
    folder = parent / (called or name)
    genai_writer.write(folder, _SCRIPTED_MODELS[name])
    return folder


def genai_repository_files(name: str, parent: Path) -> dict[str, bytes]:
    """Return a model as the files of a repository; ``parent`` is used to write them."""
    folder = write_genai_model(parent, name)
    return {path.name: path.read_bytes() for path in folder.iterdir()}
