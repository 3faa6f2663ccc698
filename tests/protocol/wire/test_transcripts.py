"""Transcripts in all forms."""

from __future__ import annotations

import pytest

from protocol.wire.transcripts import (
    LANGUAGES,
    RESPONSE_FORMATS,
    TEXT_FORMATS,
    Transcript,
    TranscriptSegment,
    TranscriptWord,
    as_json,
    as_srt,
    as_text,
    as_verbose_json,
    as_webvtt,
    language_code,
)

TRANSCRIPT = Transcript(
    language="english",
    duration=3725.2,
    text="Once upon. A --> time",
    segments=[
        TranscriptSegment(
            0,
            0.0,
            1.5,
            " Once upon.",
            tokens=[1, 2],
            words=[TranscriptWord("Once", 0.0, 0.5), TranscriptWord("upon.", 0.5, 1.5)],
        ),
        TranscriptSegment(1, 3661.005, 3725.2, " A --> time", tokens=[3]),
    ],
)


def test_text_and_subtitles() -> None:
    assert as_text(TRANSCRIPT) == "Once upon. A --> time\n"
    assert as_srt(TRANSCRIPT) == (
        "1\n00:00:00,000 --> 00:00:01,500\nOnce upon.\n\n2\n01:01:01,005 --> 01:02:05,200\nA --> time\n\n"
    )
    assert as_webvtt(TRANSCRIPT) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nOnce upon.\n\n01:01:01.005 --> 01:02:05.200\nA -> time\n\n"
    )
    assert as_webvtt(Transcript()) == "WEBVTT\n\n"
    assert as_srt(Transcript()) == ""


def test_json() -> None:
    assert as_json(TRANSCRIPT) == {"text": TRANSCRIPT.text, "usage": {"type": "duration", "seconds": 3726}}
    body = as_verbose_json(TRANSCRIPT)
    assert (body["task"], body["language"], body["duration"]) == ("transcribe", "english", 3725.2)
    assert "words" not in body
    assert [each["id"] for each in body["segments"]] == [0, 1]
    assert body["segments"][0]["compression_ratio"] > 0
    body = as_verbose_json(TRANSCRIPT, ["word"])
    assert body["words"] == [
        {"word": "Once", "start": 0.0, "end": 0.5},
        {"word": "upon.", "start": 0.5, "end": 1.5},
    ]
    assert "segments" not in body
    assert {"words", "segments"} <= as_verbose_json(TRANSCRIPT, ["word", "segment"]).keys()


def test_tables() -> None:
    assert RESPONSE_FORMATS == ("json", "text", "srt", "vtt", "verbose_json")
    assert set(TEXT_FORMATS) < set(RESPONSE_FORMATS)
    assert len(LANGUAGES) == 100
    assert LANGUAGES["ht"] == "haitian creole"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("en", "en"),
        (" DE ", "de"),
        ("German", "de"),
        ("haitian creole", "ht"),
        ("Flemish", "nl"),
        ("en-US", "en"),
        ("pt_BR", "pt"),
        ("yue", "yue"),
        ("Auto", "auto"),
        ("klingon", ""),
        ("german-ish", "de"),
        ("a" * 5000, ""),
        ("", ""),
    ],
)
def test_a_language_by_name_or_code(body: str, code: str) -> None:
    assert language_code(body) == code
