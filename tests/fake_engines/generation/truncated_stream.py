"""Ends every stream except the warm-up in correct HTTP, but without its end marker."""

import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import Body, FakeLlamaServer, choice, event, send


class TruncatedStream(FakeLlamaServer):
    """See the file's first line."""

    async def stream(self, writer: StreamWriter, path: str, body: Body) -> None:
        if self.answered == 1:
            await super().stream(writer, path, body)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        send(writer, event(path, self.argument("-a", ""), [choice(path, " half", None)]))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()


if __name__ == "__main__":
    TruncatedStream(sys.argv).main()
