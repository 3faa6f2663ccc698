"""Characters that change how a text is shown: which they are, and that their escapes in JSON mean the same."""

from __future__ import annotations

import json
import unicodedata

import hypothesis.strategies as st
from hypothesis import given

from protocol.runtime.control_characters import ESCAPES, escape_in_json

CONTROLS = st.sampled_from([chr(code) for code in ESCAPES])


def test_every_character_that_turns_the_order_of_text_round_is_among_them() -> None:
    directions = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI", "B"}
    found = {code for code in range(0x110000) if unicodedata.bidirectional(chr(code)) in directions}
    assert found <= ESCAPES.keys()
    assert {0x202E, 0x200F, 0x2066, 0x061C, 0xFEFF, 0x1B, 0x9B, 0x7F, 0xE0041} <= ESCAPES.keys()


def test_no_letter_digit_or_sign_is_among_them() -> None:
    kinds = {unicodedata.category(chr(code)) for code in ESCAPES}
    assert kinds <= {"Cc", "Cf", "Zl", "Zp", "Cn"}


@given(st.lists(st.one_of(CONTROLS, st.characters(codec="utf-8")), max_size=20).map("".join))
def test_a_text_with_escapes_is_visible(text: str) -> None:
    assert not any(ord(letter) in ESCAPES for letter in text.translate(ESCAPES))


@given(st.lists(st.one_of(CONTROLS, st.characters(codec="utf-8")), max_size=20).map("".join))
def test_escapes_in_json_mean_the_same_text(text: str) -> None:
    written = escape_in_json(json.dumps({text: [text]}, ensure_ascii=False).encode())
    assert json.loads(written) == {text: [text]}
    assert not any(ord(letter) in ESCAPES and letter != "\x7f" for letter in written.decode())
