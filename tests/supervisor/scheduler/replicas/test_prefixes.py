"""Prefixes of prompts: what two bodies have in common, and what a replica remembers of them."""

from __future__ import annotations

import pytest

from supervisor.scheduler.replicas.prefixes import BLOCK, MAX_BLOCKS, MAX_KNOWN, KnownPrefixes, prompt_prefixes

TEXT = "abcdefgh" * BLOCK


def body(text: str, before: str = '"model":"a",', after: str = ',"stream":true') -> bytes:
    return f'{{{before}"messages":[{{"role":"user","content":"{text}"}}]{after}}}'.encode()


def common(one: bytes, other: bytes) -> int:
    known = KnownPrefixes()
    known.learn(prompt_prefixes(one))
    return known.longest(prompt_prefixes(other))


@pytest.mark.parametrize(
    ("one", "other", "blocks"),
    [
        (body(TEXT), body(TEXT), 8),
        (body(TEXT), body(TEXT, before='"temperature":0.25,"model":"other",'), 8),
        (body(TEXT), body(TEXT[: BLOCK * 4] + "x" + TEXT), 4),
        (body(TEXT), body("x" + TEXT), 0),
        (body(TEXT), body(TEXT[BLOCK:]), 7),
        (body("short"), body("short"), 0),
        (body(TEXT), TEXT.encode(), 0),
        (b"", b"", 0),
        (b'{"prompt":"' + TEXT.encode() + b'"}', b'{"max_tokens":1,"prompt":"' + TEXT.encode() + b'"}', 8),
        (body('\\\\"messages\\\\":' + TEXT), body('\\\\"messages\\\\":' + TEXT), 8),
        (body(TEXT, before=r'"user":"\"messages\":",'), body(TEXT), 8),
    ],
)
def test_blocks_that_two_bodies_have_in_common(one: bytes, other: bytes, blocks: int) -> None:
    assert common(one, other) == blocks


def test_blocks_of_another_beginning_are_not_the_same() -> None:
    assert common(body("x" * BLOCK * 2 + TEXT), body("y" * BLOCK * 2 + TEXT)) == 0


def test_only_the_beginning_of_a_long_prompt_is_compared() -> None:
    long = "x" * BLOCK * (MAX_BLOCKS + 9)
    assert len(prompt_prefixes(body(long))) == MAX_BLOCKS


def test_a_bounded_number_of_blocks_is_remembered_and_the_latest_ones_longest() -> None:
    known = KnownPrefixes()
    prompts = [tuple(range(start, start + 512)) for start in range(0, 512 * (MAX_KNOWN // 512 + 1), 512)]
    for each in prompts[:-1]:
        known.learn(each)
    known.learn(prompts[0])
    known.learn(prompts[-1])
    assert [known.longest(each) for each in prompts] == [512, 0, *[512] * (len(prompts) - 2)]


def test_the_end_of_a_prompt_is_forgotten_before_its_beginning() -> None:
    known = KnownPrefixes()
    known.learn(tuple(range(512)))
    for start in range(512, 512 + MAX_KNOWN - 256, 256):
        known.learn(tuple(range(start, start + 256)))
    assert known.longest(tuple(range(512))) == 256


def test_what_is_forgotten_is_not_known() -> None:
    known = KnownPrefixes()
    known.learn((1, 2))
    known.clear()
    assert known.longest((1, 2)) == 0
