"""What whisper-server says of a recording, in the middle language: words made of its tokens, tokens counted. Pure."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from protocol.transcripts import Segment, Transcript, Usage, Word

_WITHOUT_SPACES: Final = frozenset({"cantonese", "chinese", "japanese", "khmer", "lao", "myanmar", "thai", "tibetan"})
"""Languages in which each token is as near to a word as can be told."""
_decode = msgspec.json.Decoder(Transcript).decode


def transcript(answer: bytes) -> bytes:
    """Return whisper-server's ``verbose_json`` as a :class:`Transcript`; raises ValueError for anything else."""
    said = _decode(answer)
    for segment in said.segments:
        segment.words = words(segment, said.language)
        segment.avg_logprob = _real(segment.avg_logprob)
    said.text = "".join(segment.text.removesuffix("\n") for segment in said.segments).strip()
    said.usage = Usage(completion_tokens=sum(len(segment.tokens) for segment in said.segments))
    return msgspec.json.encode(said)


def words(segment: Segment, language: str) -> list[Word]:
    """Return a segment's words: a token that begins with a space begins one; punctuation belongs to the one before."""
    found: list[Word] = []
    for piece in segment.words:
        text = piece.word
        begins = text.startswith(" ") or language in _WITHOUT_SPACES or not found
        if begins and any(letter.isalnum() for letter in text):
            found.append(Word(text.strip(), piece.start, piece.end))
        elif found and text.strip():
            found[-1] = Word(found[-1].word + text.strip(), found[-1].start, piece.end)
    return found


def _real(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
