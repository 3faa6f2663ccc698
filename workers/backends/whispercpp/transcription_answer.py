"""Translates whisper-server's answer to the internal format: tokens become words, and tokens are counted. Pure."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from protocol.wire.transcripts import Transcript, TranscriptSegment, TranscriptUsage, TranscriptWord

_WITHOUT_SPACES: Final = frozenset({"cantonese", "chinese", "japanese", "khmer", "lao", "myanmar", "thai", "tibetan"})
"""Languages in which a token is the closest unit to a word."""


class _EngineSegment(TranscriptSegment, kw_only=True):
    text: str


class _EngineTranscript(Transcript, kw_only=True):
    segments: list[_EngineSegment]  # type: ignore[assignment] # each of them is a TranscriptSegment


_decode: Final = msgspec.json.Decoder(_EngineTranscript).decode


def convert_transcription(answer: bytes) -> bytes:
    """Return whisper-server's ``verbose_json`` as a :class:`Transcript`; raises ValueError for anything else."""
    transcript = _decode(answer)
    for segment in transcript.segments:
        segment.words = words_of_segment(segment, transcript.language)
        segment.avg_logprob = _finite_or_none(segment.avg_logprob)
    transcript.text = "".join(segment.text.removesuffix("\n") for segment in transcript.segments).strip()
    transcript.usage = TranscriptUsage(completion_tokens=sum(len(segment.tokens) for segment in transcript.segments))
    return msgspec.json.encode(transcript)


def words_of_segment(segment: TranscriptSegment, language: str) -> list[TranscriptWord]:
    """Return a segment's words.

    A token that begins with a space begins a word; punctuation belongs to the word before it.
    """
    found: list[TranscriptWord] = []
    for piece in segment.words:
        text = piece.word
        begins = text.startswith(" ") or language in _WITHOUT_SPACES or not found
        if begins and any(letter.isalnum() for letter in text):
            found.append(TranscriptWord(text.strip(), piece.start, piece.end))
        elif found and text.strip():
            found[-1] = TranscriptWord(found[-1].word + text.strip(), found[-1].start, piece.end)
    return found


def _finite_or_none(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
