"""Answers every request except the warm-up with bytes that are not HTTP."""

import os
import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class InvalidHttp(FakeLlamaServer):
    """See the file's first line."""

    async def generate(self, writer: StreamWriter, path: str, body: Body) -> None:
        if not self.answered:
            await super().generate(writer, path, body)
            return
        writer.write(b"\x00\xff" + os.urandom(64) + b"\r\n\r\n")
        await writer.drain()
        writer.close()


if __name__ == "__main__":
    InvalidHttp(sys.argv).main()
