"""``flm serve`` of the stand-in: it listens before it has a model, answers after it has tried to load it, and fails

with 200. It works on one request at a time, and some others may wait; text completions ignore that, and do not notice

clients that hang up. Every connection ends after one answer, and one that a client ended counts forever.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import time
from asyncio import StreamReader, StreamWriter
from typing import Any, Final

from tests.fake_engines import flm

Body = dict[str, Any]

COOLING_S: Final = 0.05


class FakeFlmServer:
    """One process."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.model = ""
        self.connections = 0
        self.npu = asyncio.Lock()
        self.waiting = 0
        self.at_work = 0
        self.created = int(time.time())

    async def run(self) -> None:
        """Listen, load, answer."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self.given.host, self.given.port))
        listener.listen(64)
        if self.given.tag:
            await self.load(self.given.tag, "Failed to load default model: ")
        flm.say("FLM", f"Starting server on port {self.given.port}...")
        server = await asyncio.start_server(self.serve, sock=listener)
        await server.serve_forever()

    async def load(self, tag: str, complaint: str) -> bool:
        """Load only this model, and fetch it if necessary."""
        if tag == self.model:
            return True
        if self.model:
            flm.note(f"swapped {self.model} for {tag}")
        there = tag in flm.MODELS and (flm.is_there(tag) or flm.pull(tag))
        await asyncio.sleep(flm.behaviour("load_s", 0.05))
        if not there or flm.behaviour("load_fails", "") == tag:
            self.model = ""
            flm.say("Error", complaint + tag)
            return False
        self.model = tag
        return True

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer one request, then hang up."""
        if self.connections >= self.given.socket:
            writer.close()
            return
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            method, target, body = await read(reader)
            flm.say("⬇️ ", f"Incoming Request: {method}")
            if body:
                print(f"Body: \n{json.dumps(body, indent=4, ensure_ascii=False)}", flush=True)
            await self.route(f"{method} {target}", body, reader, writer)
            if not writer.is_closing():
                await writer.drain()
                self.connections -= 1
        writer.close()

    async def route(self, asked: str, body: Body, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer a request. Requests that need the NPU wait for it, except for text completions."""
        match asked:
            case "GET /api/tags":
                answer(writer, {"models": [{"name": tag, "model": tag} for tag in flm.MODELS]})
            case "GET /api/version":
                answer(writer, {"version": flm.VERSION})
            case "GET /api/npu/status":
                busy = self.npu.locked()
                answer(writer, {"npu_available": not busy, "active_requests": int(busy), "message": ""})
            case "POST /v1/completions":
                await self.generate(body, writer, None)
            case "POST /v1/chat/completions" | "POST /v1/embeddings" | "POST /v1/audio/transcriptions":
                if self.npu.locked() and self.waiting >= self.given.q_len:
                    reason = f"NPU is in use and request queue is full (limit: {self.given.q_len})."
                    answer(writer, {"error": reason + " Please try again later."}, 503)
                    return
                self.waiting += 1
                async with self.npu:
                    self.waiting -= 1
                    if "embeddings" in asked:
                        self.embed(body, writer)
                    elif "audio" in asked:
                        received = {"model": body["model"], "text": f" {body['file'].partition('data')[2][4:].strip()}"}
                        answer(writer, received if self.given.asr else None)
                    else:
                        await self.generate(body, writer, asyncio.ensure_future(reader.read(1)))
            case _:
                answer(writer, {"error": "Not Found"}, 404)

    def embed(self, body: Body, writer: StreamWriter) -> None:
        """Answer with a vector for each text, or with ``null`` if there is no model for that."""
        if not self.given.embed:
            answer(writer, None)
            return
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        if not all(isinstance(text, str) for text in texts):
            answer(writer, {"error": "[json.exception.type_error.302] type must be string, but is number"})
            return
        data = [
            {"object": "embedding", "embedding": [len(text) / 8.0, -0.5], "index": index}
            for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        answer(writer, {"object": "list", "data": data, "model": body["model"], "usage": usage})

    async def generate(self, body: Body, writer: StreamWriter, gone: asyncio.Future[bytes] | None) -> None:
        """Say ``one two three``… ``gone`` becomes true when the client hangs up; a text completion never checks it."""
        tag = str(body.get("model", self.model))
        chat = gone is not None
        try:
            text = prompt(body, chat)
        except TypeError as problem:
            error = {"message": f"[json.exception.type_error.302] {problem}", "type": "server_error", "code": 500}
            answer(writer, {"error": error})
            return
        if not await self.load(tag, "Failed to load model: "):
            answer(writer, {"error": f"Failed to load {tag} model!"})
            return
        count = len(text.split())
        if count > self.given.ctx_len:
            too_long = {"message": "Max length reached!", "type": "model_error", "code": 400}
            answer(writer, {"error": too_long if chat else "Max length reached"}, 400 if chat else 200)
            return
        self.at_work += 1
        if self.at_work > 1:
            flm.note("two at once")
        try:
            answer_text = await self.tokens(body, writer, gone, tag)
        finally:
            self.at_work -= 1
        if answer_text is not None:
            self.finish(body, writer, chat, tag, count, answer_text)

    async def tokens(
        self, body: Body, writer: StreamWriter, gone: asyncio.Future[bytes] | None, tag: str
    ) -> list[str] | None:
        """Generate the answer's tokens, and send each if the answer is streamed. Return None if the client hung up meanwhile."""
        most = body.get("max_tokens", body.get("max_completion_tokens", 4096) if gone is not None else 4096)
        words = [f" {number}" for number in range(int(flm.behaviour("words", 5)))][:most]
        if body.get("stream"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for word in words:
            await asyncio.sleep(flm.behaviour("token_s", 0.002))
            if gone is not None and gone.done():
                print("Client disconnected; cancelling active request", flush=True)
                await asyncio.sleep(COOLING_S)
                writer.close()
                return None
            if body.get("stream") and not writer.is_closing():
                delta = {"role": "assistant", "content": word}
                shown = (
                    {"index": 0, "delta": delta} if gone is not None else {"text": word, "index": 0, "logprobs": None}
                )
                self.event(writer, gone is not None, tag, {**shown, "finish_reason": None})
        return words

    def finish(self, body: Body, writer: StreamWriter, chat: bool, tag: str, prompt: int, words: list[str]) -> None:
        """Say how it ended and what it cost."""
        usage: Body = {
            "prompt_tokens": prompt,
            "completion_tokens": len(words),
            "total_tokens": prompt + len(words),
        }
        if chat:
            usage |= {"prefill_duration_ttft": 0.01, "decoding_duration": 0.002 * len(words)}
        cut = len(words) < int(flm.behaviour("words", 5))
        reason = flm.behaviour("finish", "length" if cut else "stop")
        if body.get("stream"):
            last: Body = {"finish_reason": reason}
            if chat:
                last = {"index": 0, "delta": {"content": None}, **last}
            self.event(writer, chat, tag, last, usage=usage)
            send(writer, b"data: [DONE]\n\n")
            writer.write(b"0\r\n\r\n")
            return
        text = "".join(words)
        choice: Body = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        whole = {"index": 0, **choice, "finish_reason": reason}
        answer(writer, {"id": "fastflowlm-chat-completion", "model": tag, "choices": [whole], "usage": usage})

    def event(self, writer: StreamWriter, chat: bool, tag: str, choice: Body, **more: Any) -> None:
        """Write one chunk, with its fields in flm's order."""
        kind = "chat.completion.chunk" if chat else "text_completion"
        chunk = {"id": "chatcmpl-1", "object": kind, "created": self.created, "model": tag, "choices": [choice], **more}
        send(writer, b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n")


def prompt(body: Body, chat: bool) -> str:
    """Return everything to be read; raises TypeError for anything that is not text."""
    for name in ("max_tokens", "temperature", "top_p", "top_k"):
        if name in body and not isinstance(body[name], int | float):
            raise TypeError(f"type must be number, but is {type(body[name]).__name__}")
    answer_text = [each.get("content") for each in body["messages"]] if chat else [body["prompt"]]
    texts = [part for each in answer_text for part in (each if isinstance(each, list) else [each])]
    texts = [part.get("text", "") if isinstance(part, dict) else part for part in texts]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("type must be string, but is array")
    return " ".join(texts)


async def read(reader: StreamReader) -> tuple[str, str, Body]:
    """Read one request."""
    first = (await reader.readline()).decode().split()
    if len(first) < 2:
        raise ConnectionError
    fields: dict[bytes, bytes] = {}
    while (line := (await reader.readline()).strip()) != b"":
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip()
    body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
    kind, _, boundary = fields.get(b"content-type", b"").partition(b"; boundary=")
    if kind == b"multipart/form-data":
        return first[0], first[1], parts(body, boundary)
    return first[0], first[1], json.loads(body) if body else {}


def parts(body: bytes, boundary: bytes) -> Body:
    """Read a form; return its fields by their names."""
    found: Body = {}
    for part in body.split(b"--" + boundary + b"\r\n")[1:]:
        head, _, data = part.partition(b"\r\n\r\n")
        name = head.split(b'name="')[1].split(b'"')[0]
        found[name.decode()] = data.split(b"\r\n--" + boundary)[0].removesuffix(b"\r\n").decode()
    return found


def send(writer: StreamWriter, data: bytes) -> None:
    """Write one chunk of a chunked body."""
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def answer(writer: StreamWriter, body: Any, status: int = 200) -> None:
    """Write a whole JSON answer. It says nothing about the connection, which ends anyway."""
    data = json.dumps(body, separators=(",", ":")).encode()
    head = f"HTTP/1.1 {status} .\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
