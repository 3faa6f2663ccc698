"""Listens, and loads forever, with a quarter of a processor."""

import asyncio
import sys
import time

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class NeverReady(FakeLlamaServer):
    """See the file's first line."""

    async def load(self) -> None:
        self.loading = asyncio.create_task(self.compute())

    async def compute(self) -> None:
        while True:
            until = time.process_time() + 0.01
            while time.process_time() < until:
                pass
            await asyncio.sleep(0.03)

    def health(self) -> tuple[int, Body]:
        return 503, {"error": {"code": 503, "message": "Loading model"}}


if __name__ == "__main__":
    NeverReady(sys.argv).main()
