"""Transcripts in all forms."""

from __future__ import annotations

import pytest

from protocol.transcripts import (
    FORMS,
    LANGUAGES,
    WRITTEN,
    Segment,
    Transcript,
    Word,
    brief,
    language_code,
    plain,
    subrip,
    verbose,
    webvtt,
)

HEARD = Transcript(
    language="english",
    duration=3725.2,
    text="Once upon. A --> time",
    segments=[
        Segment(0, 0.0, 1.5, " Once upon.", tokens=[1, 2], words=[Word("Once", 0.0, 0.5), Word("upon.", 0.5, 1.5)]),
        Segment(1, 3661.005, 3725.2, " A --> time", tokens=[3]),
    ],
)


def test_text_and_subtitles() -> None:
    assert plain(HEARD) == "Once upon. A --> time\n"
    assert subrip(HEARD) == (
        "1\n00:00:00,000 --> 00:00:01,500\nOnce upon.\n\n2\n01:01:01,005 --> 01:02:05,200\nA --> time\n\n"
    )
    assert webvtt(HEARD) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nOnce upon.\n\n01:01:01.005 --> 01:02:05.200\nA -> time\n\n"
    )
    assert webvtt(Transcript()) == "WEBVTT\n\n"
    assert subrip(Transcript()) == ""


def test_json() -> None:
    assert brief(HEARD) == {"text": HEARD.text, "usage": {"type": "duration", "seconds": 3726}}
    said = verbose(HEARD)
    assert (said["task"], said["language"], said["duration"]) == ("transcribe", "english", 3725.2)
    assert "words" not in said
    assert [each["id"] for each in said["segments"]] == [0, 1]
    assert said["segments"][0]["compression_ratio"] > 0
    said = verbose(HEARD, ["word"])
    assert said["words"] == [
        {"word": "Once", "start": 0.0, "end": 0.5},
        {"word": "upon.", "start": 0.5, "end": 1.5},
    ]
    assert "segments" not in said
    assert {"words", "segments"} <= verbose(HEARD, ["word", "segment"]).keys()


def test_tables() -> None:
    assert FORMS == ("json", "text", "srt", "vtt", "verbose_json")
    assert set(WRITTEN) < set(FORMS)
    assert len(LANGUAGES) == 100
    assert LANGUAGES["ht"] == "haitian creole"


@pytest.mark.parametrize(
    ("said", "code"),
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
def test_a_language_by_name_or_code(said: str, code: str) -> None:
    assert language_code(said) == code
