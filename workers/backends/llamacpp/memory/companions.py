"""The files beside a model that take memory with it: the draft model and adapters of its command line, and its projector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from workers.backends.llamacpp.flags import FLAGS
from workers.files import gguf


class Companions(NamedTuple):
    """The headers of files beside the model."""

    draft: Sequence[gguf.GgufHeader] = ()
    projector: gguf.GgufHeader | None = None
    adapters: Sequence[gguf.GgufHeader] = ()


def read_companions(words: Sequence[str], projector: gguf.GgufHeader | None) -> Companions:
    """Return the companions that a command line names. The engine will say what is wrong with one that cannot be read."""
    draft = FLAGS.value_of(words, "--model-draft")
    adapters = [
        *(FLAGS.value_of(words, "--lora") or "").split(","),
        *(each.rpartition(":")[0] for each in (FLAGS.value_of(words, "--lora-scaled") or "").split(",")),
    ]
    return Companions(
        _headers(gguf.parts_of(Path(draft))) if draft else [],
        projector,
        _headers(Path(each) for each in adapters if each),
    )


def _headers(paths: Iterable[Path]) -> list[gguf.GgufHeader]:
    found = []
    for path in paths:
        try:
            found.append(gguf.read(path))
        except (OSError, ValueError):
            continue
    return found
