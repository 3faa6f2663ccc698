"""English words for numbers: cardinals, ordinals, years, decimals. Pure."""

from __future__ import annotations

from typing import Final

_ONES: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS: Final = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES: Final = ("", "thousand", "million", "billion", "trillion")
MAX_DIGITS: Final = 3 * len(_SCALES)
"""Digits of the largest number that has words here; longer ones are read digit by digit."""
_ORDINALS: Final = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


def cardinal(digits: str) -> str:
    """Return the words for a whole number; one with a zero before it, or too long, is read digit by digit."""
    if len(digits) > MAX_DIGITS or (len(digits) > 1 and digits.startswith("0")):
        return each_digit(digits)
    number = int(digits)
    if number < 1000:
        return _below_thousand(number)
    words: list[str] = []
    for power in range(len(_SCALES) - 1, -1, -1):
        part = number // 1000**power % 1000
        if part:
            words += [_below_thousand(part), _SCALES[power]]
    return " ".join(filter(None, words))


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [_ONES[hundreds], "hundred"] if hundreds else []
    if rest or not hundreds:
        words.append(_below_hundred(rest))
    return " ".join(words)


def _below_hundred(number: int) -> str:
    if number < 20:
        return _ONES[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens] + (f" {_ONES[ones]}" if ones else "")


def each_digit(digits: str) -> str:
    """Return the words for each digit."""
    return " ".join(_ONES[int(digit)] for digit in digits)


def ordinal(digits: str) -> str:
    """Return the words for the position that a whole number names: ``twenty first``."""
    *before, last = cardinal(digits).split()
    regular = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return " ".join([*before, _ORDINALS.get(last, regular)])


def year(digits: str) -> str:
    """Return the words for a year of four digits: ``nineteen eighty four``, ``two thousand five``."""
    century, rest = int(digits[:2]), int(digits[2:])
    if digits[1:3] == "00" or century < 10:  # 2005, 0500
        return cardinal(str(int(digits)))
    if not rest:
        return f"{_below_hundred(century)} hundred"
    return f"{_below_hundred(century)} {'oh ' if rest < 10 else ''}{_below_hundred(rest)}"


def decimal(whole: str, fraction: str) -> str:
    """Return the words for a number with digits after its point."""
    return f"{cardinal(whole or '0')} point {each_digit(fraction)}"
