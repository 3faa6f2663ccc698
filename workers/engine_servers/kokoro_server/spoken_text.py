"""English text as it is spoken: numbers, dates, money, units and abbreviations become words, and marks of formatting go. Pure.

Every pattern takes a time that grows with the length of the text only: what it repeats is bounded, or cannot match in two ways.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from workers.engine_servers.kokoro_server.numbers import MAX_DIGITS, cardinal, decimal, each_digit, ordinal, year

_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_MONTH: Final = "|".join(name[:3] + (f"(?:{name[3:]})?" if name[3:] else "") for name in _MONTHS)
_ABBREVIATIONS: Final = {
    "dr": "doctor",
    "mr": "mister",
    "mrs": "missis",
    "ms": "miss",
    "prof": "professor",
    "st": "saint",
    "vs": "versus",
    "etc": "et cetera",
    "approx": "approximately",
    "dept": "department",
    "fig": "figure",
    "no": "number",
    "vol": "volume",
    "jr": "junior",
    "sr": "senior",
}
_BEFORE_NUMBER: Final = ("no", "fig", "vol")
"""Abbreviations only before a number: otherwise they are words at the end of a sentence."""
_BEFORE_NAME: Final = ("st",)
_UNITS: Final = {
    "km": "kilometer",
    "cm": "centimeter",
    "mm": "millimeter",
    "m": "meter",
    "kg": "kilogram",
    "g": "gram",
    "mg": "milligram",
    "l": "liter",
    "ml": "milliliter",
    "lb": "pound",
    "lbs": "pound",
    "oz": "ounce",
    "ft": "foot",
    "mi": "mile",
    "h": "hour",
    "hr": "hour",
    "hrs": "hour",
    "min": "minute",
    "s": "second",
    "sec": "second",
    "ms": "millisecond",
    "μs": "microsecond",
    "μm": "micrometer",
    "μg": "microgram",
    "kb": "kilobyte",
    "mb": "megabyte",
    "gb": "gigabyte",
    "tb": "terabyte",
    "hz": "hertz",
    "khz": "kilohertz",
    "mhz": "megahertz",
    "ghz": "gigahertz",
    "w": "watt",
    "kw": "kilowatt",
    "v": "volt",
    "mph": "mile per hour",
    "km/h": "kilometer per hour",
}
_SAME_IN_PLURAL: Final = frozenset({"hertz", "kilohertz", "megahertz", "gigahertz"})
_MONEY: Final = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny")}
_PLURALS: Final = {"penny": "pence", "foot": "feet", "half": "halves"}
_SYMBOLS: Final = {
    "&": " and ",
    "%": " percent",
    "@": " at ",
    "+": " plus ",
    "=": " equals ",
    "°": " degrees",
    "§": " section ",
    "×": " times ",
    "÷": " divided by ",
    "<": " less than ",
    ">": " greater than ",
    "€": " euro",
    "£": " pound",
    "$": " dollar",
    "#": " number ",
}
_QUOTES: Final = str.maketrans(
    {
        "’": "'",
        "‘": "'",
        "`": "",
        "´": "'",
        "«": "“",
        "»": "”",
        "„": "“",
        "–": "—",
        "―": "—",
        "•": "",
        "\u00ad": "",
        "⁄": "/",
    }
)
_VULGAR_FRACTION: Final = re.compile("(\\d?)([¼-¾⅐-⅞])")
_NUMERIC_DATE: Final = re.compile(r"(?<![\d/.])(\d{1,2})/(\d{1,2})/(1[0-9]{3}|20\d\d)(?![\d/])")
_DIGITS: Final = r"\d{1,3}(?:,\d{3}){1,4}(?!\d)|\d{1,40}"


def _unit_words(name: str, one: bool) -> str:
    first, *more = _UNITS[name].split(" ", 1)
    return " ".join([first if one or first in _SAME_IN_PLURAL else _PLURALS.get(first, f"{first}s"), *more])


def _money(found: re.Match[str]) -> str:
    unit, small = _MONEY[found[1]]
    whole, cents, scale = found[2].replace(",", ""), found[3] or "", found[4] or ""
    if scale or len(cents) not in (0, 2):
        amount = decimal(whole, cents) if cents else cardinal(whole)
        return f"{amount} {scale.strip()} {unit}s".replace("  ", " ")
    parts = []
    if int(whole) or not cents.strip("0"):
        parts.append(f"{cardinal(whole)} {unit if whole == '1' else unit + 's'}")
    if cents.strip("0"):
        plural = _PLURALS.get(small, f"{small}s")
        parts.append(f"{cardinal(str(int(cents)))} {small if cents == '01' else plural}")
    return " and ".join(parts)


def _date(digits_of_year: str, month: int, day: int) -> str:
    """Return the words for a date; empty if there is none."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return ""
    return f"{_MONTHS[month - 1]} {ordinal(str(day))}, {year(digits_of_year)}"


def _iso_date(found: re.Match[str]) -> str:
    return _date(found[1], int(found[2]), int(found[3])) or found[0]


def _numeric_date(found: re.Match[str], british: bool) -> str:
    first, second = int(found[1]), int(found[2])
    month, day = (second, first) if (british and second <= 12) or first > 12 else (first, second)
    return _date(found[3], month, day) or found[0]


def _day_of_month(found: re.Match[str]) -> str:
    name = next(each for each in _MONTHS if each.lower().startswith(found[1].lower()[:3]))
    return f"{name} {ordinal(found[2])}"


def _fraction(found: re.Match[str]) -> str:
    above, below = int(found[1]), int(found[2])
    if not 0 < above < below <= 10:
        return f"{found[1]} slash {found[2]}"
    part = {2: "half", 4: "quarter"}.get(below) or ordinal(str(below))
    return f"{cardinal(str(above))} {part if above == 1 else _PLURALS.get(part, f'{part}s')}"


def _time(found: re.Match[str]) -> str:
    hours, minutes = int(found[1]), int(found[2])
    if hours > 24 or minutes > 59:
        return found[0]
    spoken = cardinal(str(hours))
    if minutes:
        spoken += f" {'oh ' if minutes < 10 else ''}{cardinal(str(minutes))}"
    elif not found[3]:
        spoken += " o'clock" if 0 < hours <= 12 else " hundred hours"
    return f"{spoken} {found[3][0].upper()} M" if found[3] else spoken


def _measure(found: re.Match[str]) -> str:
    return f"{found[1]} {_unit_words(found[2].lower(), found[1] == '1')}"


def _decade(found: re.Match[str]) -> str:
    words = year(found[1]) if len(found[1]) == 4 else cardinal(found[1])
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


def _version(found: re.Match[str]) -> str:
    return " point ".join(cardinal(part) for part in found[0].split("."))


def _number(found: re.Match[str]) -> str:
    sign = " minus " if found[1] else ""
    whole, fraction, suffix = found[2], found[3] or "", (found[4] or "").lower()
    plain = whole.replace(",", "")
    if fraction:
        return f"{sign}{decimal(plain, fraction)}{suffix and ' '}{suffix}"
    if suffix in ("st", "nd", "rd", "th"):
        return f"{sign}{ordinal(plain)}"
    if len(whole) == 4 and "1100" <= whole <= "2099" and not sign and not whole.endswith("000"):
        words = year(whole)
    elif len(plain) > MAX_DIGITS:
        words = each_digit(plain)
    else:
        words = cardinal(plain)
    return f"{sign}{words}{suffix and ' '}{suffix}"


def _abbreviation(found: re.Match[str]) -> str:
    name, following = found[1].lower(), found[2]
    if name in _BEFORE_NUMBER and not following.strip()[:1].isdigit():
        return found[0]
    if name in _BEFORE_NAME and not following.strip()[:1].isupper():
        return found[0]
    return _ABBREVIATIONS[name] + following


def _address(found: re.Match[str]) -> str:
    spoken = re.sub(r"\W+$", "", found[2])
    for mark, word in ((".", " dot "), ("/", " slash "), ("-", " dash "), ("_", " underscore "), (":", " colon ")):
        spoken = spoken.replace(mark, word)
    return f" {spoken} "


_RULES: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"!?\[([^\[\]\n]{1,200})\]\([^()\s]{1,500}\)"), r"\1"),  # a link of Markdown
    (re.compile(r"(?m)^[ \t]{0,8}(?:#{1,6}|>|[-*+])[ \t]+"), ""),  # its headings and lists
    (re.compile(r"[*_]{2,3}|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)"), ""),
    (re.compile(r"\b(https?://|www\.)([^\s<>\"“”()]{1,200})"), _address),
    (re.compile(r"\b(\w{1,40}@)(\w[\w.-]{0,80}\.\w{2,10})\b"), lambda found: found[1] + _address(found).strip()),
    (re.compile(r"\b(1[0-9]{3}|20[0-9]{2})-(\d\d)-(\d\d)\b"), _iso_date),
    (re.compile(rf"\b({_MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?\b(?![:.]\d)"), _day_of_month),
    (re.compile(r"\b(\d{1,2}):(\d\d)(?:[ ]?([AaPp])\.?[Mm]\b\.?)?(?!\d)(?::\d\d\b)?"), _time),
    (re.compile(r"\b(\d{1,2})[ ]?([ap])\.?m\b\.?", re.IGNORECASE), lambda found: f"{found[1]} {found[2].upper()} M"),
    (
        re.compile(rf"([$€£])[ ]?({_DIGITS})(?:\.(\d{{1,6}}))?([ ](?:hundred|thousand|million|billion|trillion))?\b"),
        _money,
    ),
    (
        re.compile(r"\b(Dr|Mr|Mrs|Ms|Prof|St|vs|etc|approx|dept|fig|no|vol|Jr|Sr)\.(\s{0,3}.?)", re.IGNORECASE),
        _abbreviation,
    ),
    (re.compile(r"\bv\.?(?=\d)"), "version "),
    (re.compile(r"(?<![\w.])\d{1,5}(?:\.\d{1,5}){2,4}(?![\w.]*\d)"), _version),
    (re.compile(r"\b'?(\d0|1[0-9]\d0|20\d0)'?s\b"), _decade),
    (re.compile(r"°[ ]?([CF])\b"), lambda found: " degrees " + {"C": "Celsius", "F": "Fahrenheit"}[found[1]]),
    (re.compile(r"\be\.g\.,?"), "for example,"),
    (re.compile(r"\bi\.e\.,?"), "that is,"),
    (
        re.compile(
            rf"(?<![\w.])(\d[\d,.]{{0,20}})[ ]?({'|'.join(sorted(map(re.escape, _UNITS), key=len, reverse=True))})(?![\w/])",
            re.IGNORECASE,
        ),
        _measure,
    ),
    (re.compile(r"(?<=\d)(?:[-—]|[ ][-—][ ])(?=\d)"), " to "),
    (re.compile(r"(?<![\d/.,])(\d{1,2})/(\d{1,2})(?![\d/]|[.,]\d)"), _fraction),
    (re.compile(r"(?<=\d)/(?=\d)"), " slash "),
    (re.compile(rf"(?<![\w.])(-?)({_DIGITS})(?:\.(\d{{1,40}}))?([a-zA-Z]{{1,3}}\b)?"), _number),
    (re.compile(r"\d{1,40}"), lambda found: f" {cardinal(found[0])} "),
    (re.compile(r"[ ]-{1,3}[ ]|---?"), " — "),
    (re.compile(r"(?<=\w)/(?=\w)"), " or "),
    (re.compile("[" + re.escape("".join(_SYMBOLS)) + "]"), lambda found: _SYMBOLS[found[0]]),
    (re.compile(r"\.{3,}"), "…"),
    (re.compile(r"[ \t]+"), " "),
)


def spoken_english(text: str, *, british: bool = False) -> str:
    """Return the text with words for everything that is not a word. ``british``: 3/4/2026 is in April."""
    text = _VULGAR_FRACTION.sub(lambda found: f"{found[1] and found[1] + ' and '}{found[2]}", text)
    text = unicodedata.normalize("NFKC", text.replace("…", "\0")).replace("\0", "…").translate(_QUOTES)
    text = _NUMERIC_DATE.sub(lambda found: _numeric_date(found, british), text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.strip()
