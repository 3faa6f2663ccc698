"""Verdicts of guard models, in OpenAI's categories."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from gateway.api.openai.guard_models import (
    CATEGORIES,
    HAZARDS,
    GuardVerdict,
    TopWord,
    Word,
    moderation_result,
    read_verdict,
)
from protocol.failures import Code, LemonbusError


def word(token: str, share: float, **others: float) -> Word:
    top = [TopWord(name.strip("_"), log(each)) for name, each in others.items()]
    return Word(token, log(share), top)


@pytest.mark.parametrize(
    ("text", "words", "verdict"),
    [
        ("safe", [], GuardVerdict(False, (), 0.0)),
        ("\n\nsafe\n", [word("\n\n", 1.0), word("safe", 0.9, unsafe=0.1)], GuardVerdict(False, (), 0.1)),
        ("unsafe\nS1", [], GuardVerdict(True, ("S1",), 1.0)),
        ("\n\nunsafe\nS10,S1,S10", [word("unsafe", 0.6, safe=0.2, other=0.2)], GuardVerdict(True, ("S10", "S1"), 0.75)),
        ("Unsafe\nS2, S14", [word("un", 0.6, safe=0.2)], GuardVerdict(True, ("S2", "S14"), 0.75)),
        ("safe\nS1", [], GuardVerdict(False, (), 0.0)),
        ("unsafe", [word("x", 1.0)], GuardVerdict(True, (), 1.0)),
    ],
)
def test_a_verdict(text: str, words: list[Word], verdict: GuardVerdict) -> None:
    found = read_verdict(text, words, "guard")
    assert (found.unsafe, found.hazards) == (verdict.unsafe, verdict.hazards)
    assert found.score == pytest.approx(verdict.score)


@pytest.mark.parametrize("text", ["", "Hello! How can I help?", "unsafely", "yes"])
def test_what_no_guard_model_says_is_an_error(text: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        read_verdict(text, [], "chat")
    assert (raised.value.failure.code, raised.value.failure.model) == (Code.BACKEND_ERROR, "chat")


@pytest.mark.parametrize(
    ("hazards", "categories"),
    [
        (("S1",), {"violence", "illicit/violent"}),
        (("S10", "S11"), {"hate", "self-harm"}),
        (("S4",), {"sexual/minors"}),
        (("S6",), set()),
        (("S99",), set()),
    ],
)
def test_an_unsafe_text_is_flagged_in_the_categories_that_its_hazards_are_part_of(
    hazards: tuple[str, ...], categories: set[str]
) -> None:
    result = moderation_result(GuardVerdict(True, hazards, 0.8), ["text"])
    assert result.flagged, "also if OpenAI has no category for it"
    assert {name for name, flag in result.categories.items() if flag} == categories
    assert {name for name, score in result.category_scores.items() if score} == categories
    assert [each.id for each in result.hazards] == [*hazards]


def test_a_safe_text_has_the_score_of_the_whole_in_every_category_that_is_judged() -> None:
    result = moderation_result(GuardVerdict(False, (), 0.1), ["text"])
    judged = {name for name, hazards in CATEGORIES.items() if hazards}
    assert not result.flagged
    assert not any(result.categories.values())
    assert {name: score for name, score in result.category_scores.items() if score} == dict.fromkeys(judged, 0.1)
    assert {name for name, types in result.category_applied_input_types.items() if types} == judged


def test_the_categories_are_those_of_openai_and_the_hazards_exist() -> None:
    from openai.types import moderation  # noqa: PLC0415 - takes a second in every test process

    fields: Any = moderation.Categories.model_fields
    assert {field.alias or name for name, field in fields.items()} == CATEGORIES.keys()
    assert {hazard for hazards in CATEGORIES.values() for hazard in hazards} <= HAZARDS.keys()
