"""A stand-in for a server of any make with OpenAI's API, as a section with ``command`` or ``url`` names it.

``section()`` is such a section. Unlike llama-server, it writes JSON with spaces, a role in every delta or in
none, and answers only what its type has. ``--fault NAME``: what it does wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.fake_engines.llama_server import ROOT, WORDS, read_target, send
from tests.fake_engines.openai_answers import COUNTS, MODEL, SOUND, Body, other_answer, unknown_model, whole_answer


def section(*arguments: str, **keys: Any) -> dict[str, Any]:
    """Return a section that starts this server. ``arguments``: after the port; ``keys``: more keys of the section."""
    words = [
        sys.executable,
        "-m",
        "tests.fake_engines.openai_server",
        "--port",
        "{port}",
        "--of",
        "models/{name}",
        *arguments,
    ]
    return {"command": words, **keys, "env": {"PYTHONPATH": str(ROOT), **keys.get("env", {})}}


class FakeOpenAiServer:
    """One server."""

    def __init__(self, words: list[str]) -> None:
        self._arguments = words
        self.port = int(self.argument("--port", "0"))
        self.faults = self.argument("--fault", "").split(",")
        self.key = os.environ.get("STAND_IN_KEY", self.argument("--key", ""))
        self.journal = self.argument("--journal", "")
        """A file that gets a line for each request: path, headers and body."""
        self.requests = 0

    @property
    def after_role(self) -> bool:
        """Whether it sends a role before the first word, as some servers do before they read the prompt."""
        return not {"dies_after_role", "cut_after_role"}.isdisjoint(self.faults)

    def argument(self, name: str, default: str) -> str:
        words = self._arguments
        return words[words.index(name) + 1] if name in words else default

    async def run(self) -> None:
        """Serve until a signal comes."""
        if "ignores_sigterm" in self.faults:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif self.journal and "blocks" not in self.faults:
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self.end, number.name)
        self.leave_child()
        encrypted = None
        if certificate := self.argument("--certificate", ""):
            encrypted = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            encrypted.load_cert_chain(certificate, self.argument("--certificate-key", ""))
        server = await asyncio.start_server(self.serve, "127.0.0.1", self.port, ssl=encrypted)
        self.port = server.sockets[0].getsockname()[1]
        print("serving", flush=True)
        await server.serve_forever()

    def end(self, name: str) -> None:
        """Write the name of the signal beside the journal, and end."""
        Path(f"{self.journal}.signal").write_text(name)
        sys.exit(0)

    def leave_child(self) -> None:
        """Start a process that does not end with this one, and write its pid beside the journal."""
        if "leaves_child" in self.faults:
            child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
            Path(f"{self.journal}.child").write_text(str(child.pid))

    def die_once(self, fault: str) -> None:
        """Die of the first request, but not after another start."""
        mark = Path(f"{self.journal}.died")
        if fault in self.faults and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def block_once(self) -> None:
        """Answer nothing from the first request on, whatever its client does: it computes in the thread that serves connections."""
        mark = Path(f"{self.journal}.blocked")
        if "blocks" in self.faults and not mark.exists():
            mark.touch()
            threading.Event().wait()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            headers = _Headers(reader)
            while (request := await read_target(headers)) is not None:
                method, target, body, more = request
                self.note(target, headers.take(), body)
                await self.answer(method, target, headers.last, body, writer)
                await writer.drain()
                if not more:
                    break
        writer.close()

    def note(self, target: str, headers: dict[str, str], body: bytes) -> None:
        if self.journal and target.startswith("/v1/") and body:
            line = {"path": target, "headers": headers, "body": body.decode("utf-8", "replace")}
            with Path(self.journal).open("a") as file:
                file.write(json.dumps(line) + "\n")

    async def answer(self, method: str, path: str, headers: dict[str, str], body: bytes, writer: StreamWriter) -> None:
        if path == "/health" and "no_health" not in self.faults:
            return reply(writer, 503 if "never_ready" in self.faults else 200, {})
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            return reply(writer, 401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}})
        if path == "/v1/models" and method == "GET" and "no_models" not in self.faults:
            return reply(writer, 200, {"object": "list", "data": [{"id": MODEL, "max_model_len": 777}]})
        if method != "POST":
            return reply(writer, 404, {"detail": "Not Found"})
        self.requests += 1
        self.block_once()
        return await self.post(path, body, writer)

    async def post(self, path: str, body: bytes, writer: StreamWriter) -> None:
        if "limits" in self.faults:
            reply(writer, 429, {"error": {"message": "Slow down", "code": None}}, "Retry-After: 7\r\n")
        elif "fails" in self.faults:
            reply(writer, 500, {"error": {"message": "Internal fault", "type": "server_error", "code": None}})
        elif "hangs" in self.faults:
            await asyncio.Event().wait()
        elif path == "/v1/audio/speech":
            reply_bytes(writer, 200, "audio/pcm", SOUND)
        elif path in ("/v1/chat/completions", "/v1/completions"):
            await self.generate(path, json.loads(body), writer)
        else:
            status, answer = other_answer(path, body)
            if "no_words" in self.faults:
                del answer["words"]
            reply(writer, status, answer)

    async def words(self) -> AsyncIterator[str]:
        for number, word in enumerate(WORDS):
            if number == 2 and "dies" in self.faults:
                os.kill(os.getpid(), signal.SIGKILL)
            if number == 2 and "pauses" in self.faults:
                await asyncio.Event().wait()
            await asyncio.sleep(0.005)
            yield word

    async def generate(self, path: str, fields: Body, writer: StreamWriter) -> None:
        self.die_once("dies_at_once")
        if fields.get("model") != MODEL:
            reply(writer, *unknown_model(fields))
        elif not fields.get("stream"):
            text = "".join([word async for word in self.words()])
            reply(writer, 200, whole_answer(path, text, {} if "no_usage" in self.faults else {"usage": COUNTS}))
        elif "stream_options" in fields and "strict" in self.faults:
            reply(writer, 400, {"error": {"message": "stream_options: extra fields not permitted"}})
        else:
            await self.stream(path, fields, writer)

    async def stream(self, path: str, fields: Body, writer: StreamWriter) -> None:
        stream = EventWriter(writer, until_close="until_close" in self.faults, crlf="line_ends" in self.faults)
        chat = "chat" in path
        if self.after_role:
            stream.event({"index": 0, "finish_reason": None, "delta": {"role": "assistant", "content": ""}})
            await writer.drain()
            self.die_once("dies_after_role")
            if "cut_after_role" in self.faults:
                return stream.cut()
        number = 0
        async for word in self.words():
            number += 1
            if number == 3 and "cut" in self.faults:
                return stream.cut()
            stream.event(
                {"index": 0, "finish_reason": None, **({"delta": {"content": word}} if chat else {"text": word})}
            )
            await writer.drain()
        if "error_in_stream" in self.faults:
            stream.write('data: {"error": {"message": "Out of luck", "type": "server_error", "code": "500"}}')
        elif "no_finish" not in self.faults:
            stream.event({"index": 0, "finish_reason": "stop", **({"delta": {}} if chat else {"text": ""})})
        if fields.get("stream_options", {}).get("include_usage") and "no_usage" not in self.faults:
            stream.event(usage=COUNTS)
        if "no_done" not in self.faults:
            stream.write("data: [DONE]")
        return stream.end()


class EventWriter:
    """A stream of events in a form of its own: with the field ``event``, with spaces, and with ``usage`` in every chunk."""

    def __init__(self, writer: StreamWriter, *, until_close: bool, crlf: bool) -> None:
        self._writer, self._until_close = writer, until_close
        self._line = "\r\n" if crlf else "\n"
        length = "Connection: close" if until_close else "Transfer-Encoding: chunked"
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{length}\r\n\r\n".encode())

    def write(self, event: str) -> None:
        data = (event + 2 * self._line).encode()
        if self._until_close:
            self._writer.write(data)
        else:
            send(self._writer, data)

    def event(self, *choices: Body, **more: Any) -> None:
        chunk = {"id": "x", "object": "chunk", "model": MODEL, "usage": None, "choices": list(choices), **more}
        self.write(f"event: message{self._line}data: {json.dumps(chunk)}")

    def cut(self) -> None:
        """Close the connection in the middle of the stream."""
        self._writer.close()

    def end(self) -> None:
        if self._until_close:
            self._writer.close()
        else:
            self._writer.write(b"0\r\n\r\n")


class _Headers(StreamReader):
    """A reader that notes the headers of the request that it reads."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self._lines: list[str] = []
        self.last: dict[str, str] = {}

    async def readline(self) -> bytes:
        line = await self._reader.readline()
        self._lines.append(line.decode("latin-1"))
        return line

    async def readexactly(self, n: int) -> bytes:
        return await self._reader.readexactly(n)

    def take(self) -> dict[str, str]:
        pairs = (line.strip().partition(":") for line in self._lines[1:] if ":" in line)
        self.last = {name.lower(): value.strip() for name, _, value in pairs}
        self._lines = []
        return self.last


def reply(writer: StreamWriter, status: int, body: Any, more: str = "") -> None:
    """Write a whole JSON answer, with spaces."""
    reply_bytes(writer, status, "application/json", json.dumps(body, indent=1).encode(), more)


def reply_bytes(writer: StreamWriter, status: int, kind: str, data: bytes, more: str = "") -> None:
    """Write a whole answer."""
    head = f"HTTP/1.1 {status} .\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}\r\n"
    writer.write(head.encode() + data)


if __name__ == "__main__":
    asyncio.run(FakeOpenAiServer(sys.argv).run())
