"""Transcripts that are read from whisper-server's answers."""

from __future__ import annotations

import json

import msgspec
import pytest

from protocol.wire.transcripts import Transcript, TranscriptSegment, TranscriptWord
from workers.backends.whispercpp import transcription_answer


def test_what_whisper_server_says() -> None:
    pieces = [" One", "s", ",", " up", "on", "!"]
    engine_answer = {
        "task": "transcribe",
        "language": "english",
        "duration": 2.0,
        "text": " Ones,\n upon!\n",
        "segments": [
            {"id": 0, "text": " Ones,", "start": 0.0, "end": 1.0, "tokens": [1, 2, 3], "avg_logprob": None},
            {"id": 1, "text": " upon!", "start": 1.0, "end": 2.0, "tokens": [4, 5, 6], "no_speech_prob": 0.1},
        ],
        "detected_language": "english",
    }
    for place, segment in enumerate(engine_answer["segments"]):  # type: ignore[arg-type]
        words = pieces[3 * place : 3 * place + 3]
        segment["words"] = [  # type: ignore[index]
            {"word": word, "start": at, "end": at + 1, "t_dtw": -1, "probability": 0.5} for at, word in enumerate(words)
        ]
    found = msgspec.json.decode(
        transcription_answer.convert_transcription(json.dumps(engine_answer).encode()), type=Transcript
    )
    assert found.text == "Ones, upon!"
    assert [word for each in found.segments for word in each.words] == [
        TranscriptWord("Ones,", 0, 3),
        TranscriptWord("upon!", 0, 3),
    ]
    assert found.usage is not None
    assert found.usage.completion_tokens == 6


@pytest.mark.parametrize("answer", [b"", b"text", b"[]", b'{"segments":3}'])
def test_answers_that_make_no_sense(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        transcription_answer.convert_transcription(answer)


def test_words_of_languages_without_spaces() -> None:
    segment = TranscriptSegment(
        words=[TranscriptWord("今天", 0, 1), TranscriptWord("天气", 1, 2), TranscriptWord("。", 2, 3)]
    )
    assert transcription_answer.words_of_segment(segment, "chinese") == [
        TranscriptWord("今天", 0, 1),
        TranscriptWord("天气。", 1, 3),
    ]
    assert transcription_answer.words_of_segment(segment, "english") == [TranscriptWord("今天天气。", 0, 3)]
