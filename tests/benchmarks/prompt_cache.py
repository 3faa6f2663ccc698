"""The second turn of a conversation of 3,000 tokens whose model was evicted between the turns, with and without ``keep_prompt_cache``."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from tests.benchmarks.measuring import median, ms, until
from tests.support.models.tiny_models import tiny_models
from tests.support.server import LemonbusServer

TOKENS = 3000
OTHER = "extra.tiny-chat"
_MEGABYTE = 1e6
_PATIENCE = 300.0
"""Seconds that a real model may take for the first turn."""


class PromptCacheResult(msgspec.Struct):
    """One model, with or without ``keep_prompt_cache``: medians. Milliseconds, megabytes, megabytes per second."""

    model: str
    kept: bool
    first_turn: float
    """First token of the first turn; the model is loaded."""
    second_turn: float
    """First token of the second turn, with the load before it."""
    read: float
    """Tokens of the second turn's prompt that the engine had to process."""
    cached: float
    swap: float
    """First token of the other model, with the eviction and the load before it."""
    size: float = 0.0
    save: float = 0.0
    restore: float = 0.0

    @property
    def save_rate(self) -> float:
        return self.size / self.save * 1000 if self.save else 0.0

    @property
    def restore_rate(self) -> float:
        return self.size / self.restore * 1000 if self.restore else 0.0


def measure(turns: int, model: Path | None = None) -> list[PromptCacheResult]:
    """Measure tiny-slow, or the GGUF file of a real model."""
    file = model or tiny_models() / "models" / "tiny-slow.gguf"
    return [_measure(turns, file, kept=kept) for kept in (False, True)]


def _measure(turns: int, file: Path, *, kept: bool) -> PromptCacheResult:
    with tempfile.TemporaryDirectory() as folder:
        for each in (file, tiny_models() / "models" / f"{OTHER.removeprefix('extra.')}.gguf"):
            (Path(folder) / each.name).symlink_to(each.resolve())
        name = f"extra.{file.stem}"
        with LemonbusServer(
            extra_models_dir=folder,
            max_loaded_models=1,
            keep_prompt_cache=kept,
            slots=1,
            threads=0,
            log_level="info",
            gateway_workers=1,
        ) as server:
            rows = [_one_round(server, name) for _ in range(turns)]
            saves = [line for line in server.lines if line["event"] == "prompt caches saved"]
            restores = [line for line in server.lines if line["event"] == "prompt caches restored"]
    found = {key: median([row[key] for row in rows]) for key in rows[0]}
    return PromptCacheResult(
        model=file.stem,
        kept=kept,
        first_turn=ms(found["first"]),
        second_turn=ms(found["second"]),
        read=found["read"],
        cached=found["cached"],
        swap=ms(found["swap"]),
        size=round(median([line["bytes"] for line in saves]) / _MEGABYTE, 1),
        save=ms(median([line["seconds"] for line in saves])),
        restore=ms(median([line["seconds"] for line in restores])),
    )


def _one_round(server: LemonbusServer, model: str) -> dict[str, float]:
    """Have a conversation with a swap between its turns."""
    server.client.chat(model, _PATIENCE, max_tokens=1)
    conversation = [{"role": "user", "content": _text(server, model)}]
    first, _, answer = _turn(server, model, conversation)
    _settle(server)
    swap, _, _ = _turn(server, OTHER, [{"role": "user", "content": "hi"}])
    _settle(server)
    conversation += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Go on."}]
    second, timings, _ = _turn(server, model, conversation)
    return {
        "first": first,
        "swap": swap,
        "second": second,
        "read": timings["prompt_n"],
        "cached": timings["cache_n"],
    }


def _settle(server: LemonbusServer) -> None:
    """Wait for a spare worker: a swap right after another one would be slower."""
    until(lambda: sum(peer["role"] == "worker" for peer in server.state()["processes"]) > 1, 30.0)


def _text(server: LemonbusServer, model: str) -> str:
    """Return a text with this many tokens that no prompt cache has seen."""
    words = " ".join(f"Item {number} of {os.urandom(2).hex()} is on the list." for number in range(TOKENS // 4))
    tokens = server.client.post("/v1/tokenize", {"model": model, "content": words}).json()["tokens"]
    text: str = server.client.post("/v1/detokenize", {"model": model, "tokens": tokens[:TOKENS]}).json()["content"]
    return text


def _turn(server: LemonbusServer, model: str, conversation: list[dict[str, str]]) -> tuple[float, dict[str, Any], str]:
    """Ask for a short answer; return the seconds to its first event, the engine's timings and the text."""
    started = time.perf_counter()
    stream = server.client.start_chat(model, messages=conversation, stream=True, max_tokens=4)
    stream.until(lambda it: bool(it.chunks), _PATIENCE)
    first = time.perf_counter() - started
    stream.finish(_PATIENCE)
    timings = next((chunk["timings"] for chunk in stream.chunks if chunk.get("timings")), {})
    text = "".join(choice["delta"].get("content") or "" for chunk in stream.chunks for choice in chunk["choices"])
    return first, timings, text
