"""Answers a request that names a kind of rubbish with this rubbish.

A stream with rubbish begins correctly, and ends like a complete one.
"""

import asyncio
import json
import sys
from asyncio import StreamWriter
from typing import Final

from tests.fake_engines.llama_server import Body, FakeLlamaServer, choice, event, send

EVENTS: Final[dict[str, bytes]] = {
    "broken-json": b'data: {"choices":[{broken\n\n',
    "wrong-shape": b'data: {"choices":"none"}\n\n',
    "choice-of-nothing": b'data: {"choices":[{"index":0}]}\n\n',
    "no-choices": b'data: {"id":"x"}\n\n',
    "text-that-is-a-number": b'data: {"choices":[{"index":0,"delta":{"content":7},"text":7}],"content":7}\n\n',
    "two-objects": b'data: {"choices":[{"index":0,"text":"a"}]}, {"choices":[{"index":0,"text":"b"}]}\n\n',
    "not-utf8": b'data: {"choices":[{"index":0,"delta":{"content":"\xff"},"text":"\xff"}],"content":"\xff","index":0}\n\n',
    "html": b"<html><h1>502 Bad Gateway</h1></html>\n\n",
    "no-reason": b"",
    "cut-off": b"",
}
"""Kind of rubbish → the wrong event in a stream; without one, the end is wrong."""
BODIES: Final[dict[str, bytes]] = {
    "broken-json": b'{"choices":[{broken',
    "wrong-shape": b'{"choices":"none","data":7,"results":{},"content":[],"tokens":1}',
    "choice-of-nothing": b'{"choices":[{}],"data":[{}],"results":[{}]}',
    "no-choices": b'{"choices":[],"data":[]}',
    "text-that-is-a-number": b'{"choices":[{"finish_reason":"stop","message":{"content":7},"text":7}],"data":[{"embedding":7}]}',
    "two-objects": b"{} {}",
    "not-utf8": b'{"choices":[{"finish_reason":"stop","message":{"content":"\xff"},"text":"\xff"}],"content":"\xff"}',
    "html": b"<html><h1>502 Bad Gateway</h1></html>",
    "no-reason": b'{"choices":[{"finish_reason":null,"message":{"content":"a"},"text":"a"}],"content":"a","stop":false}',
    "cut-off": b'{"choices":[',
}
ENDLESS: Final = "endless-event"


class SendsRubbish(FakeLlamaServer):
    """See the file's first line."""

    async def generate(self, writer: StreamWriter, path: str, body: Body) -> None:
        asked = json.dumps(body)
        kind = next((each for each in [*EVENTS, ENDLESS] if each in asked), "")
        if not kind:
            await super().generate(writer, path, body)
        elif body.get("stream"):
            await self.spoilt_stream(writer, path, kind)
        elif kind == "cut-off":
            data = BODIES[kind]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + data)
            await writer.drain()
            writer.close()
        else:
            data = BODIES[kind]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))

    async def spoilt_stream(self, writer: StreamWriter, path: str, kind: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        native = path in ("/completion", "/infill")
        if native:
            send(writer, b'data: {"index":0,"content":" one","tokens":[],"stop":false}\n\n')
        else:
            send(writer, event(path, self.argument("-a", ""), [choice(path, " one", None)]))
        while kind == ENDLESS:
            send(writer, b"data: a")
            await writer.drain()
            await asyncio.sleep(0.05)
        send(writer, EVENTS[kind] or b": nothing\n\n")
        if kind == "cut-off":
            writer.write(b"100\r\ndata: {")
            await writer.drain()
            writer.close()
            return
        if native and kind != "no-reason":
            send(writer, b'data: {"index":0,"content":"","stop":true,"stop_type":"eos"}\n\n')
        elif kind != "no-reason":
            send(writer, event(path, self.argument("-a", ""), [choice(path, "", "stop")]))
        send(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


if __name__ == "__main__":
    SendsRubbish(sys.argv).main()
