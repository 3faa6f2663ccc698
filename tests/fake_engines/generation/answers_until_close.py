"""Answers without a length and without chunks: the end of the connection ends each response, as in HTTP/1.0."""

import json
import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import WORDS, Body, FakeLlamaServer, choice, event, usage


class AnswersUntilClose(FakeLlamaServer):
    """See the file's first line."""

    async def generate(self, writer: StreamWriter, path: str, body: Body) -> None:
        model = self.argument("-a", "")
        if body.get("stream"):
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for word in WORDS:
                writer.write(event(path, model, [choice(path, word, None)]))
                await writer.drain()
            writer.write(event(path, model, [choice(path, "", "stop")]))
            writer.write(event(path, model, [], usage=usage(len(WORDS))))
            writer.write(b"data: [DONE]\n\n")
        else:
            content = {"choices": [choice(path, "".join(WORDS), "stop", whole=True)], "usage": usage(len(WORDS))}
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps(content).encode())
        await writer.drain()
        writer.close()


if __name__ == "__main__":
    AnswersUntilClose(sys.argv).main()
