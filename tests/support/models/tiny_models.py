"""Tiny GGUF models that a real llama.cpp loads in tens of milliseconds, made once per machine.

========== ==========================================================================================
tiny-chat  says ``CHAT_TEXT`` and stops, whatever it is asked
tiny-tale  the same with ``TALE_TEXT``: tells answers of two models apart
tiny-loop  ``CHAT_TEXT`` over and over: ends by ``max_tokens``, by the context, or by being stopped
tiny-slow  tiny-loop with so much (zero) feed-forward that 3,000 tokens of prompt take over a second
tiny-tool  one call: ``get_weather({"city": "Paris"})``
tiny-think thinks in ``<think>``, then says "Forty two."
tiny-infill tiny-chat with the tokens that ``/infill`` needs
tiny-vision a folder: tiny-chat with an ``mmproj`` beside it; pictures are sixteen tokens
tiny-embed 32-dimensional embeddings; like spellings get like vectors
tiny-rerank a rank head: distinct, deterministic scores
tiny-whisper hears ``CHAT_TEXT`` in the first second of everything
slow-whisper hears nothing, and takes half a second for every 30 s of it
tiny-lora  an adapter for the chat models, in ``adapters/``
========== ==========================================================================================
"""

from __future__ import annotations

import hashlib
import os
from importlib.metadata import version
from pathlib import Path

from tests.support.cache import made_once
from tests.support.models import (
    bert_gguf,
    kokoro_models,
    llama_gguf,
    mmproj_and_lora_gguf,
    scripted_texts,
    whisper_ggml,
)
from tests.support.models.llama_gguf import ScriptedModel

CHAT_TEXT = "".join(scripted_texts.CHAT_WORDS).replace(scripted_texts.SPACE, " ")
TALE_TEXT = "".join(scripted_texts.TALE_WORDS).replace(scripted_texts.SPACE, " ")

_SCRIPTED_MODELS = [
    ScriptedModel("tiny-chat", scripted_texts.CHAT_WORDS),
    ScriptedModel("tiny-tale", scripted_texts.TALE_WORDS, seed=2),
    ScriptedModel("tiny-loop", scripted_texts.CHAT_WORDS, endless=True),
    ScriptedModel("tiny-slow", scripted_texts.CHAT_WORDS, endless=True, feed_forward=24_576),
    ScriptedModel("tiny-tool", scripted_texts.TOOL_CALL_WORDS, template=scripted_texts.TOOLS_TEMPLATE),
    ScriptedModel("tiny-think", scripted_texts.REASONING_WORDS, template=scripted_texts.TOOLS_TEMPLATE),
    ScriptedModel("tiny-infill", scripted_texts.CHAT_WORDS, infill=True),
]


def tiny_models() -> Path:
    """Return the folder of the models, made if this source has not made it on this machine yet.

    Its ``models/`` can be an extra models directory; ``adapters/`` holds what is not a model.
    """
    return made_once(f"tiny-{_fingerprint()}", write_all)


def adapters() -> Path:
    """Return the folder of the adapters."""
    return tiny_models() / "adapters"


def write_all(folder: Path) -> None:
    """Write every model into ``folder``."""
    models, adapters = folder / "models", folder / "adapters"
    vision = models / "tiny-vision"
    vision.mkdir(parents=True)
    adapters.mkdir()
    for scripted in _SCRIPTED_MODELS:
        llama_gguf.write(models / f"{scripted.name}.gguf", scripted)
    bert_gguf.write(models / "tiny-embed.gguf", "tiny-embed", ranks=False, seed=3)
    bert_gguf.write(models / "tiny-rerank.gguf", "tiny-rerank", ranks=True, seed=5)
    whisper_ggml.write(models / "tiny-whisper.bin", scripted_texts.CHAT_WORDS)
    whisper_ggml.write_slow(models / "slow-whisper.bin")
    (vision / "tiny-vision.gguf").hardlink_to(models / "tiny-chat.gguf")
    mmproj_and_lora_gguf.write_vision(vision / "mmproj-tiny.gguf")
    mmproj_and_lora_gguf.write_adapter(adapters / "tiny-lora.gguf")


def _fingerprint() -> str:
    """Return a name that depends on these sources and on the versions of their libraries, because other versions write other bytes."""
    here = Path(__file__).parent
    digest = hashlib.sha256(f"{version('numpy')} {version('gguf')}".encode())
    for source in sorted([Path(__file__), *here.glob("*.py")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def prompt_of(tokens: int) -> str:
    """Return a prompt for the chat models with about this many tokens, which no prompt cache has. The models spell

    everything that is not a piece of their story, so a character is a token.
    """
    salt = os.urandom(8).hex()
    return (salt + "x" * tokens)[:tokens]


def link_models(folder: Path, *names: str) -> None:
    """Fill ``folder`` with links to the tiny models (all, or those named). Those of Kokoro are written there if they are named."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in kokoro_models.STEPS:
        if name in names:
            kokoro_models.write_kokoro_model(folder, name)
    for model in (tiny_models() / "models").iterdir():
        if not names or model.stem in names:
            (folder / model.name).symlink_to(model)
