"""OpenAI's audio: transcribes a recording as text, as subtitles or with times.

The engine always answers with the whole transcript, and this module writes the requested format.
"""

from __future__ import annotations

from typing import ClassVar, Final

import falcon
import msgspec

from gateway.api.common.inference.inference_resource import FormResource, TranslatedRequest
from gateway.api.common.inference.stream_writer import EventStreamWriter
from gateway.api.common.inference.transcription_form import (
    TRANSCRIPTIONS,
    TRANSLATIONS,
    TranscriptionForm,
    parse_form,
)
from gateway.requests.answer_stream import WholeAnswer
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import DECODE_ERRORS, Code, Failure, not_understood
from protocol.wire import form_data, transcripts
from protocol.wire.form_data import FormPart
from protocol.wire.transcripts import Transcript

_PADDINGS: Final = {"vtt": (b"NOTE still working\n\n", b"WEBVTT\n\n")}
"""Format → what may precede an answer in it, and how the answer must begin.

A WebVTT file cannot begin with blanks, but may have comments.
"""
_decode: Final = msgspec.json.Decoder(Transcript).decode


class TranscriptionsResource(FormResource):
    """``POST audio/transcriptions``."""

    endpoint: ClassVar[str] = TRANSCRIPTIONS

    def translate(self, _req: falcon.Request, request: list[FormPart], _data: bytes) -> TranslatedRequest:
        """Check the form and write the one for the engine."""
        form = parse_form(request, self.endpoint)
        body = form_data.encode(form.parts)
        return TranslatedRequest(
            self.endpoint,
            form.model,
            body,
            writer=EventStreamWriter() if form.stream else None,
            answer=answer_format(form),
            takes_long=True,
        )


class TranslationsResource(TranscriptionsResource):
    """``POST audio/translations``: the same, into English."""

    endpoint: ClassVar[str] = TRANSLATIONS


def answer_format(form: TranscriptionForm) -> AnswerFormat:
    """Return how to write the transcript."""
    if form.response_format not in transcripts.TEXT_FORMATS:
        return AnswerFormat(falcon.MEDIA_JSON, lambda answer: _as_json(form, read_transcript(form, answer)))
    media_type, write = transcripts.TEXT_FORMATS[form.response_format]
    padding, opening = _PADDINGS.get(form.response_format, (b"\n", b""))
    return AnswerFormat(media_type, lambda answer: write(read_transcript(form, answer)).encode(), padding, opening)


def read_transcript(form: TranscriptionForm, answer: WholeAnswer) -> Transcript:
    """Return the engine's transcript.

    Raises ``backend_error`` if it cannot be read, ``unsupported_operation`` if it lacks the requested times.
    """
    try:
        transcript = _decode(answer.body)
    except DECODE_ERRORS as problem:
        raise not_understood(problem, answer.model) from None
    if transcript.text and not transcript.segments and form.response_format in transcripts.TIMED_FORMATS:
        message = f"{answer.model} gives no times: `response_format` can be json or text"
        raise Failure(Code.UNSUPPORTED, message, model=answer.model, param="response_format").raised()
    if "word" in form.granularities and transcripts.lacks_words(transcript):
        message = f"{answer.model} gives no times of words: `timestamp_granularities` can be segment"
        raise Failure(Code.UNSUPPORTED, message, model=answer.model, param="timestamp_granularities").raised()
    return transcript


def _as_json(form: TranscriptionForm, transcript: Transcript) -> bytes:
    if form.response_format == "verbose_json":
        return msgspec.json.encode(transcripts.as_verbose_json(transcript, form.granularities))
    return msgspec.json.encode(transcripts.as_json(transcript))
