"""The answers of guard models of the Llama Guard family, in OpenAI's categories of moderation. Pure.

Such a model is asked for a verdict on a text by its own chat template. Its first line is ``safe`` or ``unsafe``; after ``unsafe``, the second
line lists its hazard categories, separated by commas: ``S1,S10``. The probability of the first word is its score (Llama Guard 3's model card).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from protocol.failures import Code, Failure

CATEGORIES: Final[dict[str, tuple[str, ...]]] = {
    "harassment": (),
    "harassment/threatening": (),
    "hate": ("S10",),
    "hate/threatening": (),
    "illicit": ("S2", "S3"),
    "illicit/violent": ("S1", "S9"),
    "self-harm": ("S11",),
    "self-harm/instructions": (),
    "self-harm/intent": (),
    "sexual": ("S12",),
    "sexual/minors": ("S4",),
    "violence": ("S1",),
    "violence/graphic": (),
}
"""OpenAI's category → the hazards of Llama Guard 3 that are part of it. Without any, the model does not tell about the category."""
HAZARDS: Final = {
    "S1": "Violent Crimes",
    "S2": "Non-Violent Crimes",
    "S3": "Sex-Related Crimes",
    "S4": "Child Sexual Exploitation",
    "S5": "Defamation",
    "S6": "Specialized Advice",
    "S7": "Privacy",
    "S8": "Intellectual Property",
    "S9": "Indiscriminate Weapons",
    "S10": "Hate",
    "S11": "Suicide & Self-Harm",
    "S12": "Sexual Content",
    "S13": "Elections",
    "S14": "Code Interpreter Abuse",
}
"""The hazards of Llama Guard 3 and 4. Some are part of no category of OpenAI."""
_HAZARD: Final = re.compile(r"\bS\d{1,2}\b")
_SAFE, _UNSAFE = "safe", "unsafe"

Input = Literal["text", "image"]


class TopWord(msgspec.Struct):
    """A token, and the logarithm of its probability."""

    token: str
    logprob: float


class Word(TopWord):
    """A token of an answer, with the likeliest ones in its place."""

    top_logprobs: list[TopWord] = []


class GuardVerdict(NamedTuple):
    """What a guard model answered."""

    unsafe: bool
    hazards: tuple[str, ...]
    """``S1`` …; empty if it is safe."""
    score: float
    """The probability of ``unsafe``."""


class Hazard(msgspec.Struct):
    """A hazard category of the guard model."""

    id: str
    name: str


class ModerationResult(msgspec.Struct):
    """The verdict on one input, with OpenAI's fields."""

    flagged: bool
    """Whether the guard model calls it unsafe. So it may be true although no category is: see `hazards`."""
    categories: dict[str, bool]
    category_scores: dict[str, float]
    """The probability of the verdict `unsafe`, for each category that may be concerned; otherwise 0."""
    category_applied_input_types: dict[str, list[Input]]
    """Empty for a category about which the guard model does not tell."""
    hazards: list[Hazard]
    """The guard model's own categories."""


def read_verdict(text: str, words: Sequence[Word], model: str) -> GuardVerdict:
    """Return the verdict; raises ``backend_error`` if the model answered like no guard model."""
    first, _, rest = text.strip().partition("\n")
    word = first.strip().lower()
    if word not in (_SAFE, _UNSAFE):
        reason = (
            "the model did not answer as a guard model does, whose first line is `safe` or `unsafe`; moderation needs one"
            " of the Llama Guard family"
        )
        raise Failure(Code.BACKEND_ERROR, reason, model=model, detail=text[:200]).raised()
    unsafe = word == _UNSAFE
    score = _probability(words)
    return GuardVerdict(
        unsafe,
        tuple(dict.fromkeys(_HAZARD.findall(rest))) if unsafe else (),
        score if score is not None else float(unsafe),
    )


def _probability(words: Iterable[Word]) -> float | None:
    """Return how likely ``unsafe`` was in the place of the first word, instead of ``safe``; None if that is not known."""
    first = next((each for each in words if each.token.strip()), None)
    if first is None:
        return None
    likely = {each.token: each.logprob for each in (*first.top_logprobs, first)}
    share = {
        verdict: sum(math.exp(logprob) for token, logprob in likely.items() if _begins(verdict, token))
        for verdict in (_SAFE, _UNSAFE)
    }
    both = share[_SAFE] + share[_UNSAFE]
    return share[_UNSAFE] / both if both else None


def _begins(verdict: str, token: str) -> bool:
    word = token.strip().lower()
    return bool(word) and verdict.startswith(word)


def moderation_result(verdict: GuardVerdict, inputs: list[Input]) -> ModerationResult:
    """Return the verdict in OpenAI's categories. ``inputs``: what was judged.

    A model that says ``safe`` does not tell the categories apart, so each of them has the score of the whole.
    """
    flags = {name: not hazards_of.isdisjoint(verdict.hazards) for name, hazards_of in _SETS.items()}
    return ModerationResult(
        flagged=verdict.unsafe,
        categories=flags,
        category_scores={
            name: verdict.score if flags[name] or (hazards and not verdict.unsafe) else 0.0
            for name, hazards in CATEGORIES.items()
        },
        category_applied_input_types={name: [*inputs] if hazards else [] for name, hazards in CATEGORIES.items()},
        hazards=[Hazard(each, HAZARDS.get(each, "")) for each in verdict.hazards],
    )


_SETS: Final = {name: frozenset(hazards) for name, hazards in CATEGORIES.items()}
