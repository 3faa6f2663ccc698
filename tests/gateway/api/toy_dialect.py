"""A dialect as a newcomer would write it: own paths, requests, answers, streams and errors, in one object.

``POST /toy/v7/say`` takes ``{"model_name": MODEL, "words": TEXT, "live": BOOL}``. A stream is NDJSON: ``{"say": TEXT}`` for each piece,
then ``{"over": REASON, "words": TOKENS}``, or ``{"alas": CODE}`` if it broke. ``POST /toy/v7/fetch`` downloads a model.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import falcon
import msgspec

from gateway.api.common.dialect import Dialect, Routes
from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.inference.stream_writer import ChunkWriter
from gateway.api.common.operations import INFERENCE, Documentation, Operation
from gateway.api.common.progress_events import ProgressWriter, stream_progress
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding
from gateway.requests.answer_stream import WholeAnswer
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import Code, Failure
from protocol.messages.calls import Progress
from protocol.messages.model_files import Pulled, PullModel
from protocol.wire import envelope
from protocol.wire.openai_chunks import Chunk, read_usage


class ToyRequest(msgspec.Struct):
    model_name: str
    words: str
    live: bool = False


class ToyFetch(msgspec.Struct):
    model_name: str


class ToyAnswer(msgspec.Struct):
    say: str
    by: str


class ToyError(msgspec.Struct):
    alas: str
    why: str
    id: str


class ToyWriter(ChunkWriter):
    """Translates chunks; it keeps the reason and the token count for the last line."""

    media_type: ClassVar[str] = "application/x-ndjson"

    def __init__(self) -> None:
        self.reason = ""
        self.tokens = 0

    def chunk(self, chunk: Chunk) -> bytes:
        usage = read_usage(chunk)
        self.tokens = usage.completion_tokens if usage else self.tokens
        written = b""
        for choice in chunk.choices:
            self.reason = choice.finish_reason or self.reason
            written += line({"say": choice.content}) if choice.content else b""
        return written

    def end(self) -> bytes:
        return line({"over": self.reason, "words": self.tokens})

    def error(self, failure: Failure, label: str) -> bytes:
        return line({"alas": failure.code, "id": label, "sent": failure.tokens_sent})


class SayResource(InferenceResource[ToyRequest]):
    request_type = ToyRequest

    def translate(self, _req: falcon.Request, request: ToyRequest, _data: bytes) -> TranslatedRequest:
        body: dict[str, Any] = {"model": request.model_name, "messages": [{"role": "user", "content": request.words}]}
        if request.live:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        writer = ToyWriter() if request.live else None
        answer = AnswerFormat("application/x-toy", say_model_namele)
        return TranslatedRequest(
            "chat/completions", request.model_name, msgspec.json.encode(body), writer=writer, answer=answer
        )


def say_model_namele(answer: WholeAnswer) -> bytes:
    choice = msgspec.json.decode(answer.body)["choices"][0]
    return line({"say": choice["message"]["content"], "by": answer.model})


class ToyFetchWriter(ProgressWriter):
    media_type: ClassVar[str] = "application/x-ndjson"

    def complete(self, report: bytes) -> bytes:
        return line({"fetched": envelope.unpack_payload(report, Pulled).name})

    def progress(self, progress: Progress) -> bytes:
        return line({"percent": progress.percent})

    def error(self, failure: Failure, label: str) -> bytes:
        return line({"alas": failure.code, "id": label})

    def ping(self) -> bytes:
        return b""


class FetchResource:
    def __init__(self, session: SupervisorSession) -> None:
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        model_name = body_decoding.decode(body_decoding.read_json(req, 1000), ToyFetch).model_name
        stream_progress(self._session, req, resp, partial(PullModel, model=model_name, progress=True), ToyFetchWriter())


class ToyDialect(Dialect):
    error_prefixes: ClassVar[tuple[str, ...]] = ("/toy",)

    def routes(self, session: SupervisorSession) -> Routes:
        return {"/toy/v7/say": SayResource(session), "/toy/v7/fetch": FetchResource(session)}

    def documentation(self) -> Documentation:
        return Documentation(
            "Toy",
            "An API of the tests.",
            {
                SayResource: {"POST": Operation("Says more.", body=ToyRequest, answer=ToyAnswer, failures=INFERENCE)},
                FetchResource: {
                    "POST": Operation("Downloads a model.", body=ToyFetch, texts=("application/x-ndjson",))
                },
            },
            error=ToyError,
        )

    def error_status(self, failure: Failure) -> int:
        return 529 if failure.code is Code.OVERLOADED else failure.http_status

    def error_body(self, failure: Failure, label: str, *, detail: bool = False) -> bytes:
        return line({"alas": failure.code, "why": failure.message, "id": label})


def line(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"
