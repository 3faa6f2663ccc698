"""Takes 64 MiB more memory every 50 ms, 2 GiB in all, once it is asked for an answer after the warm-up, and never answers."""

import asyncio
import os
import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class AllocatesMemory(FakeLlamaServer):
    """See the file's first line."""

    async def generate(self, writer: StreamWriter, path: str, body: Body) -> None:
        held: list[bytes] = []
        while self.answered and len(held) < 32:
            held.append(os.urandom(1024) * 65_536)
            await asyncio.sleep(0.05)
        if held:
            await asyncio.Event().wait()  # it is killed, however late
        await super().generate(writer, path, body)


if __name__ == "__main__":
    AllocatesMemory(sys.argv).main()
