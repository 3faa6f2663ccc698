"""Closes the connection of the first request after the warm-up before any token, but stays alive and answers all others."""

import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class DropsConnection(FakeLlamaServer):
    """See the file's first line."""

    async def generate(self, writer: StreamWriter, path: str, body: Body) -> None:
        if self.answered == 1:
            self.answered += 1
            if body.get("stream"):
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                await writer.drain()
            writer.close()
            return
        await super().generate(writer, path, body)


if __name__ == "__main__":
    DropsConnection(sys.argv).main()
