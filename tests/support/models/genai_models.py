"""Tiny models of ONNX Runtime GenAI, which are folders: written where they are wanted, in some hundredths of a second.

============== ===================================================================================
tiny-oga       says ``GENAI_TEXT`` and stops, whatever it is asked
tiny-oga-loop  ``GENAI_TEXT`` over and over: ends by ``max_tokens``, by its context, or by being stopped
tiny-oga-context says tokens that depend on all tokens before them, and goes on as the one above
tiny-oga-plain tiny-oga without a chat template, and with a token before every text
tiny-oga-hermes, -mistral, -phi, -llama: call ``get_weather`` for Paris, each in the form of its family
============== ===================================================================================
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.models import genai_tool_templates, genai_writer
from tests.support.models.genai_writer import ScriptedGenaiModel
from tests.support.models.scripted_texts import TOOLS_TEMPLATE

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
_PIECES: Final = [f" {word}" for word in _WORDS]
_HERMES: Final = ("<tool_call>", "</tool_call>")
_PHI: Final = ("<|tool_call|>", "<|/tool_call|>")
TOOL_MODELS: Final = ("tiny-oga-hermes", "tiny-oga-mistral", "tiny-oga-phi", "tiny-oga-llama")


def _call(before: str, after: str, arguments: str = "arguments") -> list[str]:
    """Return the pieces of a call; no piece may be a single letter, because the vocabulary already has all letters."""
    return [f'{before}{{"name":', ' "get_weather",', f' "{arguments}":', ' {"city":', f' "Paris"}}}}{after}']


_SCRIPTED_MODELS: Final = {
    scripted.name: scripted
    for scripted in (
        ScriptedGenaiModel("tiny-oga", _PIECES, context=CONTEXT),
        ScriptedGenaiModel("tiny-oga-loop", _PIECES, endless=True, context=16_384, feed_forward=2048),
        ScriptedGenaiModel("tiny-oga-context", _PIECES, endless=True, context=16_384, feed_forward=2048, attention=3.0),
        ScriptedGenaiModel("tiny-oga-plain", _PIECES, template="", begins=True, context=CONTEXT),
        ScriptedGenaiModel(
            "tiny-oga-hermes",
            [_HERMES[0], *_call("\n", "\n"), _HERMES[1]],
            added=_HERMES,
            template=TOOLS_TEMPLATE,
        ),
        ScriptedGenaiModel(
            "tiny-oga-mistral",
            ["[TOOL_CALLS]", *_call("[", "]")],
            special=["[TOOL_CALLS]"],
            template=genai_tool_templates.MISTRAL,
        ),
        ScriptedGenaiModel(
            "tiny-oga-phi",
            [_PHI[0], *_call("[", "]"), _PHI[1]],
            special=_PHI,
            template=genai_tool_templates.PHI_4_MINI,
        ),
        ScriptedGenaiModel(
            "tiny-oga-llama",
            _call("", "", "parameters"),
            special=["<|python_tag|>"],
            template=genai_tool_templates.LLAMA_3,
        ),
    )
}


def write_genai_model(parent: Path, name: str, called: str = "") -> Path:
    """Write a model into a folder of ``parent`` that has its name, or is ``called`` otherwise; return the folder."""
    folder = parent / (called or name)
    genai_writer.write(folder, _SCRIPTED_MODELS[name])
    return folder


def genai_repository_files(name: str, parent: Path) -> dict[str, bytes]:
    """Return a model as the files of a repository; they are first written into ``parent``."""
    folder = write_genai_model(parent, name)
    return {path.name: path.read_bytes() for path in folder.iterdir()}
