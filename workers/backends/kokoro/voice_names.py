"""Which voices a request means: names of the model's own, OpenAI's names for voices, and mixtures. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

DEFAULT_VOICE: Final = "af_heart"
OPENAI_VOICES: Final = {
    "alloy": "af_alloy",
    "ash": "am_adam",
    "ballad": "bm_lewis",
    "cedar": "am_michael",
    "coral": "af_bella",
    "echo": "am_echo",
    "fable": "bm_fable",
    "marin": "af_sarah",
    "nova": "af_nova",
    "onyx": "am_onyx",
    "sage": "bf_emma",
    "shimmer": "af_sky",
    "verse": "am_puck",
}
"""OpenAI's name → the voice that stands for it."""
MAX_MIXED: Final = 8
"""Voices of one mixture."""
_PART: Final = re.compile(r"([A-Za-z0-9_-]{1,64})(?:\((\d{1,3}(?:\.\d{1,3})?)\))?")


class VoiceError(ValueError):
    """A voice that there is not. The text is for clients."""


def voices_of(given: str, known: Collection[str]) -> list[tuple[str, float]]:
    """Return the voices and their shares, which add up to 1; raises :class:`VoiceError`.

    ``given``: a name, or several as ``a+b`` or ``a(2)+b(1)``; empty: the default.
    """
    if not given:
        return [(DEFAULT_VOICE if DEFAULT_VOICE in known else min(known), 1.0)]
    parts = given.split("+")
    if len(parts) > MAX_MIXED:
        raise VoiceError(f"`voice`: at most {MAX_MIXED} voices can be mixed")
    shares: dict[str, float] = {}
    for part in parts:
        found = _PART.fullmatch(part.strip())
        name = _known_name(found[1], known) if found else ""
        if not name or found is None:
            raise VoiceError(f"`voice`: there is no voice {part.strip()[:64]!r}; there are: {', '.join(sorted(known))}")
        shares[name] = shares.get(name, 0.0) + float(found[2] or 1)
    total = sum(shares.values())
    if not total:
        raise VoiceError("`voice`: the shares of a mixture must add up to more than 0")
    return [(name, share / total) for name, share in shares.items() if share]


def language_of(shares: Collection[tuple[str, float]]) -> str:
    """Return the first letter of the voice with the largest share: it names the language."""
    return max(shares, key=lambda share: share[1])[0][:1]


def _known_name(name: str, known: Collection[str]) -> str:
    if name in known:
        return name
    lowered = name.lower()
    ours = OPENAI_VOICES.get(lowered, lowered)
    if ours in known:
        return ours
    # A folder may have some voices only: OpenAI's names always mean one of them.
    return min(known) if lowered in OPENAI_VOICES else ""
