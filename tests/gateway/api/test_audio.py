"""Forms of ``audio/transcriptions``: the fields of a client, and the form that the engine gets."""

from __future__ import annotations

import pytest

from gateway.api.common.inference.transcription_form import TRANSCRIPTIONS, TRANSLATIONS, parse_form
from protocol.failures import Code, LemonbusError
from protocol.wire.form_data import FormPart

SOUND = FormPart("file", b"RIFF", "a.wav")


def form(*fields: tuple[str, str]) -> list[FormPart]:
    return [FormPart(name, text.encode()) for name, text in fields] + [SOUND]


def test_the_form_that_the_engine_gets() -> None:
    fields = [("model", "m"), ("response_format", "srt"), ("language", "de-AT"), ("stream", "false"), ("prompt", "")]
    found = parse_form(form(*fields, ("beam_size", "3"), ("temperature", "0.5")), TRANSCRIPTIONS)
    assert (found.model, found.response_format, found.granularities) == ("m", "srt", [])
    reported = [("model", b"m"), ("language", b"de"), ("beam_size", b"3"), ("temperature", b"0.5"), ("file", b"RIFF")]
    assert [(part.name, part.data) for part in found.parts] == reported
    assert found.parts[-1].filename == "recording.wav"


def test_the_end_of_a_long_prompt_is_what_engines_get() -> None:
    parsed = parse_form(form(("prompt", "é" * 5_000 + "end")), "audio/transcriptions")
    (prompt,) = [part.text() for part in parsed.parts if part.name == "prompt"]
    assert prompt == "é" * 1_022 + "end"


def test_defaults() -> None:
    found = parse_form([FormPart("file", b"x")], TRANSCRIPTIONS)
    assert (found.model, found.response_format) == ("", "json")
    assert found.parts == [FormPart("file", b"x", "recording")]
    assert parse_form(form(("language", "auto")), TRANSCRIPTIONS).parts[0].data == b"auto"
    assert parse_form(form(("language", "Spanish")), TRANSCRIPTIONS).parts[0].data == b"es"


def test_granularities() -> None:
    fields = [("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment")]
    found = parse_form(form(("response_format", "verbose_json"), *fields), TRANSCRIPTIONS)
    assert found.granularities == ["word", "segment"]
    assert [part.name for part in found.parts] == ["file"]


@pytest.mark.parametrize(
    ("parts", "param"),
    [
        ([FormPart("model", b"m")], "file"),
        ([SOUND, SOUND], "file"),
        ([FormPart("file", b"", "a.wav")], "file"),
        ([*form(), FormPart("mask", b"x", "b.wav")], "mask"),
        (form(("model", "m"), ("model", "n")), "model"),
        (form(("model", "m" * 1025)), "model"),
        (form(("model", "m\0")), "model"),
        ([FormPart("prompt", b"\xff"), SOUND], "prompt"),
        (form(("prompt", "a" * 16_385)), "prompt"),
        (form(("response_format", "xml")), "response_format"),
        (form(("stream", "perhaps")), "stream"),
        (form(("stream", "true"), ("response_format", "srt")), "stream"),
        (form(("language", "klingon")), "language"),
        (form(("temperature", "warm")), "temperature"),
        (form(("temperature", "1.1")), "temperature"),
        (form(("temperature", "nan")), "temperature"),
        (form(("timestamp_granularities[]", "word")), "timestamp_granularities"),
        (form(("response_format", "verbose_json"), ("timestamp_granularities", "day")), "timestamp_granularities"),
    ],
)
def test_a_wrong_field_is_named(parts: list[FormPart], param: str) -> None:
    with pytest.raises(LemonbusError) as reported:
        parse_form(parts, TRANSCRIPTIONS)
    failure = reported.value.failure
    assert (failure.code, failure.param) == (Code.INVALID_REQUEST, param)
    assert f"`{param}`" in failure.message


@pytest.mark.parametrize(
    ("text", "wanted"), [("true", True), ("True", True), ("1", True), ("false", False), ("", False)]
)
def test_the_stream_field(text: str, wanted: bool) -> None:
    found = parse_form(form(("stream", text), ("response_format", "text")), TRANSCRIPTIONS)
    assert found.stream is wanted
    assert [part.name for part in found.parts] == ["file"]


def test_translations_are_not_streamed() -> None:
    with pytest.raises(LemonbusError) as reported:
        parse_form(form(("stream", "true")), TRANSLATIONS)
    assert reported.value.failure.param == "stream"


def test_translations_have_no_language() -> None:
    with pytest.raises(LemonbusError) as reported:
        parse_form(form(("language", "de")), TRANSLATIONS)
    assert reported.value.failure.param == "language"
