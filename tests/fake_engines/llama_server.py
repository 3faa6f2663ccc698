"""A well-behaved stand-in for llama-server over asyncio; each program in the folders beside this file misbehaves in one way.

``program()`` and ``program_by_model()`` give a test an executable path for the setting ``llama_server``, with the backend ``system``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
WORDS: Final = [" one", " two", " three", " four", " five"]
ANSWER: Final = "".join(WORDS)
BUILD: Final = "b1-fake"
SLOT_TOKENS: Final = 1000
"""Number of tokens, and of bytes, of the only slot with a prompt cache."""

Body = dict[str, Any]


def program(folder: Path, name: str) -> str:
    """Return an executable that runs the file NAME.py in this folder. The process has the pid of the started executable."""
    return program_by_model(folder, {}, name)


def program_by_model(folder: Path, names: Mapping[str, str], other: str = "well_behaved") -> str:
    """Return an executable whose program depends on the model, so that one server can have several kinds of engines.

    ``names``: the model's file without its suffix → a program, as for :func:`program`. ``other``: the program for all

    other models.
    """
    path = folder / f"engine-{'-'.join([*names.values(), other])}"
    cases = [f'*"/{model}.gguf "*) module={_module(name)};;' for model, name in names.items()]
    choice = f'case "$* " in {" ".join([*cases, f"*) module={_module(other)};;"])} esac'
    path.write_text(f'#!/bin/sh\n{choice}\nPYTHONPATH={ROOT} exec {sys.executable} -m "$module" "$@"\n')
    path.chmod(0o700)
    return str(path)


def _module(name: str) -> str:
    (file,) = Path(__file__).parent.rglob(f"{name}.py")
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


class FakeLlamaServer:
    """Answers what llama.cpp's worker needs. Override methods to make something go wrong."""

    def __init__(self, words: list[str]) -> None:
        self.arguments = words
        self.slots = int(self.argument("-np", "1"))
        self.context = int(self.argument("--ctx-size", "4096"))
        self.busy = 0
        self.answered = 0
        """Generations begun so far; the worker's warm-up is the first."""

    def argument(self, name: str, default: str) -> str:
        return self.arguments[self.arguments.index(name) + 1] if name in self.arguments else default

    async def load(self) -> None:
        """Do what must happen before it listens."""

    def health(self) -> tuple[int, Body]:
        return 200, {"status": "ok"}

    async def words(self, _body: Body) -> AsyncIterator[str]:
        """Yield the answer, piece by piece."""
        for word in WORDS:
            await asyncio.sleep(0.005)
            yield word

    async def end(self, writer: StreamWriter) -> None:
        """Return what comes after the last piece."""
        send(writer, b"data: [DONE]\n\n")

    async def generate(self, writer: StreamWriter, path: str, body: Body) -> None:
        """Answer a request for text."""
        self.answered += 1
        self.busy += 1
        try:
            if body.get("stream"):
                await self.stream(writer, path, body)
            else:
                words = [word async for word in self.words(body)]
                whole = choice(path, "".join(words), "stop", whole=True)
                answer(writer, 200, {"choices": [whole], "usage": usage(len(words))})
        finally:
            self.busy -= 1

    async def stream(self, writer: StreamWriter, path: str, body: Body) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        count = 0
        async for word in self.words(body):
            count += 1
            send(writer, event(path, self.argument("-a", ""), [choice(path, word, None)]))
            await writer.drain()
        send(writer, event(path, self.argument("-a", ""), [choice(path, "", "stop")]))
        if body.get("stream_options", {}).get("include_usage"):
            send(writer, event(path, self.argument("-a", ""), [], usage=usage(count)))
        await self.end(writer)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def slot_file(self, writer: StreamWriter, slot: int, query: str, body: Body) -> None:
        """Write the prompt cache of a slot into a file, or read it again; only slot 0 has one."""
        path = Path(self.argument("--slot-save-path", "")) / body["filename"]
        if query == "action=save":
            written = path.write_bytes(b"x" * (SLOT_TOKENS if slot == 0 else 8))
            answer(writer, 200, {"n_saved": SLOT_TOKENS if slot == 0 else 0, "n_written": written})
        else:
            found = len(path.read_bytes())
            answer(writer, 200, {"n_restored": found, "n_read": found})

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            more = True
            while more and (request := await read_target(reader)) is not None:
                method, target, body, more = request
                path, _, query = target.partition("?")
                if path == "/health":
                    answer(writer, *self.health())
                elif path == "/props":
                    settings = {"n_ctx": self.context // self.slots}
                    props = {"total_slots": self.slots, "default_generation_settings": settings, "build_info": BUILD}
                    answer(writer, 200, props)
                elif path == "/slots":
                    answer(writer, 200, [{"id": i, "is_processing": i < self.busy} for i in range(self.slots)])
                elif path.startswith("/slots/"):
                    await self.slot_file(writer, int(path[len("/slots/") :]), query, json.loads(body))
                elif method == "POST":
                    await self.generate(writer, path, json.loads(body or b"{}"))
                else:
                    answer(writer, 404, {"error": {"code": 404, "message": "File Not Found"}})
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def run(self) -> None:
        await self.load()
        port = int(self.argument("--port", "0"))
        server = await asyncio.start_server(self.serve, "127.0.0.1", port, reuse_port=True)
        await server.serve_forever()

    def main(self) -> None:
        """Run until killed."""
        asyncio.run(self.run())


def usage(count: int) -> Body:
    return {"completion_tokens": count, "prompt_tokens": 3, "total_tokens": count + 3}


def choice(path: str, text: str, finish: str | None, whole: bool = False) -> Body:
    """Return one choice as the endpoint writes it."""
    if "chat" not in path:
        return {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
    content = {"content": text} if text or whole else {}
    return {"finish_reason": finish, "index": 0, "message" if whole else "delta": content}


def event(path: str, model: str, choices: list[Body], **more: Any) -> bytes:
    """One server-sent event, its fields in the order in which llama-server writes them."""
    kind = "chat.completion.chunk" if "chat" in path else "text_completion"
    chunk = {"choices": choices, "created": int(time.time()), "id": "fake", "model": model, "object": kind, **more}
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def send(writer: StreamWriter, data: bytes) -> None:
    """Write one chunk of a chunked body."""
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def answer(writer: StreamWriter, status: int, body: Any) -> None:
    """Write a whole JSON answer."""
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} .\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)


async def read(reader: StreamReader) -> tuple[str, str, bytes, bool] | None:
    """Read one request, without its query, and whether another may follow; None at the connection's end."""
    request = await read_target(reader)
    return request and (request[0], request[1].partition("?")[0], *request[2:])


async def read_target(reader: StreamReader) -> tuple[str, str, bytes, bool] | None:
    """Read one request with its query; else like :func:`read`."""
    first = (await reader.readline()).decode().split()
    if len(first) < 2:
        return None
    length, more = 0, True
    while (line := (await reader.readline()).strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        elif name.lower() == b"connection":
            more = value.strip().lower() != b"close"
    return first[0], first[1], await reader.readexactly(length), more
