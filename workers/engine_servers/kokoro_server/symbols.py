"""The symbols of Kokoro's phonemes and their numbers, as its configuration defines them. Pure."""

from __future__ import annotations

from typing import Final

_RUNS: Final = {
    1: ";:,.!?",
    9: '—…"()“” \u0303ʣʥʦʨᵝ\uab67AI',
    31: "O",
    33: "Q",
    35: "ST",
    39: "W",
    41: "Yᵊabcdef",
    50: "hijklmnopqrstuvwxyzɑɐɒæ",
    75: "βɔɕç",
    80: "ɖðʤə",
    85: "ɚɛɜ",
    90: "ɟ",
    92: "ɡ",
    99: "ɥ",
    101: "ɨɪʝ",
    110: "ɯɰŋɳɲɴø",
    118: "ɸθœ",
    123: "ɹ",
    125: "ɾɻ",
    128: "ʁɽʂʃʈʧ",
    135: "ʊʋ",
    138: "ʌɣɤ",
    142: "χʎ",
    147: "ʒʔ",
    156: "ˈˌː",
    162: "ʰ",
    164: "ʲ",
    169: "↓",
    171: "→↗↘",
    177: "ᵻ",
}
"""Number of the first symbol → symbols with consecutive numbers."""
SYMBOLS: Final[dict[str, int]] = {
    symbol: start + offset for start, run in _RUNS.items() for offset, symbol in enumerate(run)
}
MAX_SYMBOLS: Final = 510
"""Symbols that the model takes at once."""
PAUSES: Final = ";:,.!?—…"
"""Symbols that separate the parts of a sentence."""


def numbers_of(phonemes: str) -> list[int]:
    """Return the model's input for phonemes; symbols that it does not have are left out."""
    return [SYMBOLS[symbol] for symbol in phonemes if symbol in SYMBOLS]
