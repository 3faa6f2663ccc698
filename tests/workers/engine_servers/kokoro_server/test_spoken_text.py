"""English text as words: numbers, dates, money, units, abbreviations, addresses and Markdown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.speech import MAX_INPUT_LENGTH
from workers.engine_servers.kokoro_server import numbers
from workers.engine_servers.kokoro_server.spoken_text import spoken_english


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("0", "zero"),
        ("7", "seven"),
        ("13", "thirteen"),
        ("40", "forty"),
        ("99", "ninety nine"),
        ("100", "one hundred"),
        ("999", "nine hundred ninety nine"),
        ("1000", "one thousand"),
        ("1000000", "one million"),
        ("1002003", "one million two thousand three"),
        ("999999999999999", numbers.cardinal("999999999999999")),
        ("007", "zero zero seven"),
        ("1" * 20, " ".join(["one"] * 20)),
    ],
)
def test_cardinals(written: str, spoken: str) -> None:
    assert numbers.cardinal(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [("1", "first"), ("2", "second"), ("3", "third"), ("12", "twelfth"), ("20", "twentieth"), ("21", "twenty first")],
)
def test_ordinals(written: str, spoken: str) -> None:
    assert numbers.ordinal(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("1984", "nineteen eighty four"),
        ("1905", "nineteen oh five"),
        ("1900", "nineteen hundred"),
        ("2000", "two thousand"),
        ("2005", "two thousand five"),
        ("2026", "twenty twenty six"),
    ],
)
def test_years(written: str, spoken: str) -> None:
    assert numbers.year(written) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Dr. Smith and Mrs. Jones", "doctor Smith and missis Jones"),
        ("No. 5 is no. It is no.", "number five is no. It is no."),
        ("e.g. this, i.e. that", "for example, this, that is, that"),
        (
            "$5.20, $1, $0.99 and $3 million",
            "five dollars and twenty cents, one dollar, ninety nine cents and three million dollars",
        ),
        ("£2.01 and €10", "two pounds and one penny and ten euros"),
        ("20% of 1,234", "twenty percent of one thousand two hundred thirty four"),
        ("pi is 3.14159", "pi is three point one four one five nine"),
        ("in 1984 and the 1990s", "in nineteen eighty four and the nineteen nineties"),
        ("on 2024-05-17", "on May seventeenth, twenty twenty four"),
        ("on Jan. 2nd, 2020", "on January second, twenty twenty"),
        ("at 3:45 pm or 12:00", "at three forty five P M or twelve o'clock"),
        ("9 a.m. sharp", "nine A M sharp"),
        ("10-20 km/h and 1 kg", "ten to twenty kilometers per hour and one kilogram"),
        ("6 ft, 5 GHz", "six feet, five gigahertz"),
        ("-5 °C", "minus five degrees Celsius"),
        ("the 21st", "the twenty first"),
        ("Python 3.11.2 and v2.5", "Python three point eleven point two and version two point five"),
        ("https://example.com/a-b", "example dot com slash a dash b"),
        ("mail joe@example.com!", "mail joe at example dot com!"),
        ("**bold** and _it_, `code` and [a link](http://x.y)", "bold and it, code and a link"),
        ("# Title\n- one\n* two", "Title\none\ntwo"),
        ("this—or that – wait...", "this—or that — wait…"),
        (
            "on 3/4/2026 or 31/12/1999",
            "on March fourth, twenty twenty six or December thirty first, nineteen ninety nine",
        ),
        ("99/99/2020", "ninety nine slash ninety nine slash twenty twenty"),
        ("1/2, 3/4 and 2/3", "one half, three quarters and two thirds"),
        ("½, 3½ and ⅔", "one half, three and one half and two thirds"),
        ("24/7", "twenty four slash seven"),
        ("1,000 -5", "one thousand minus five"),
        ("5 µm", "five micrometers"),
        ("R&D", "R and D"),
        ("and/or", "and or or"),
        ("don’t", "don't"),
        ("", ""),
    ],
)
def test_what_is_not_a_word_becomes_words(text: str, spoken: str) -> None:
    assert " ".join(spoken_english(text).replace("\n", " \n ").split(" ")).replace(" \n ", "\n") == spoken


def test_british_dates_begin_with_the_day() -> None:
    assert spoken_english("3/4/2026", british=True) == "April third, twenty twenty six"


@given(st.text(max_size=200))
def test_any_text_leaves_no_digit_of_ours(text: str) -> None:
    assert not any(c in "0123456789" for c in spoken_english(text))


HOSTILE = [
    "1,",
    "[",
    "*",
    "a@",
    "$1",
    "-",
    "1-",
    "https://",
    ".",
    " ",
    "1.1",
    "a.b@",
    "_a",
    "1:",
    "1 k",
    "Dr.",
    "#",
    "](",
    "1st",
    "1/",
    "½",
]


@pytest.mark.parametrize("part", HOSTILE)
def test_a_hostile_text_ends(part: str) -> None:
    """A pattern that tries each way to read a text would take longer than a test may."""
    assert spoken_english((part * MAX_INPUT_LENGTH)[:MAX_INPUT_LENGTH]) is not None
