"""Tiny GGUF models that a real llama.cpp loads in tens of milliseconds, made once per machine.

========== ==========================================================================================
tiny-chat  says ``STORY`` and stops, whatever it is asked
tiny-tale  the same with ``TALE``: tells answers of two models apart
tiny-loop  ``STORY`` over and over: ends by ``max_tokens``, by the context, or by being stopped
tiny-slow  tiny-loop with so much (zero) feed-forward that 3,000 tokens of prompt take over a second
tiny-tool  one call: ``get_weather({"city": "Paris"})``
tiny-think thinks in ``<think>``, then says "Forty two."
tiny-vision a folder: tiny-chat with an ``mmproj`` beside it; pictures are sixteen tokens
tiny-embed 32-dimensional embeddings; like spellings get like vectors
tiny-rerank a rank head: distinct, deterministic scores
tiny-whisper hears ``STORY`` in the first second of everything
slow-whisper hears nothing, and takes half a second for every 30 s of it
tiny-lora  an adapter for the chat models, in ``adapters/``
========== ==========================================================================================
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from tests.house.tiny import attachments, decoder, encoder, listener, stories
from tests.house.tiny.decoder import Story

STORY = "".join(stories.CHAT).replace(stories.SPACE, " ")
TALE = "".join(stories.TALE).replace(stories.SPACE, " ")

_STORIES = [
    Story("tiny-chat", stories.CHAT),
    Story("tiny-tale", stories.TALE, seed=2),
    Story("tiny-loop", stories.CHAT, endless=True),
    Story("tiny-slow", stories.CHAT, endless=True, feed_forward=24_576),
    Story("tiny-tool", stories.CALL, template=stories.TOOLS),
    Story("tiny-think", stories.THOUGHT, template=stories.TOOLS),
]


def tiny_models() -> Path:
    """Return the folder of the models, made if this source has not made it on this machine yet.

    ``models/`` in it is fit to be an extra models directory; ``adapters/`` holds what is no model.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lemonbus-tests"
    cache.mkdir(parents=True, exist_ok=True)
    made = cache / f"tiny-{_fingerprint()}"
    if made.is_dir():
        return made
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            draft = Path(tempfile.mkdtemp(dir=cache, prefix="draft-"))
            try:
                write_all(draft)
                draft.rename(made)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return made


def write_all(folder: Path) -> None:
    """Write every model into ``folder``."""
    models, adapters = folder / "models", folder / "adapters"
    vision = models / "tiny-vision"
    vision.mkdir(parents=True)
    adapters.mkdir()
    for story in _STORIES:
        decoder.write(models / f"{story.name}.gguf", story)
    encoder.write(models / "tiny-embed.gguf", "tiny-embed", ranks=False, seed=3)
    encoder.write(models / "tiny-rerank.gguf", "tiny-rerank", ranks=True, seed=5)
    listener.write(models / "tiny-whisper.bin", stories.CHAT)
    listener.write_slow(models / "slow-whisper.bin")
    (vision / "tiny-vision.gguf").hardlink_to(models / "tiny-chat.gguf")
    attachments.write_vision(vision / "mmproj-tiny.gguf")
    attachments.write_adapter(adapters / "tiny-lora.gguf")


def _fingerprint() -> str:
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted([Path(__file__), *(here / "tiny").glob("*.py")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def prompt_of(tokens: int) -> str:
    """Return a prompt of about so many tokens for the chat models, that no prompt cache has seen.

    The models spell every character that is not a piece of their story, so a character is a token.
    """
    salt = os.urandom(8).hex()
    return (salt + "x" * tokens)[:tokens]


def link_models(folder: Path, *names: str) -> None:
    """Fill ``folder`` with links to the tiny models (all, or those named)."""
    folder.mkdir(parents=True, exist_ok=True)
    for model in (tiny_models() / "models").iterdir():
        if not names or model.stem in names:
            (folder / model.name).symlink_to(model)
