"""Takes a second and a half until it listens."""

import asyncio
import sys

from tests.fake_engines.llama_server import FakeLlamaServer


class SlowStart(FakeLlamaServer):
    """See the file's first line."""

    async def load(self) -> None:
        await asyncio.sleep(1.5)


if __name__ == "__main__":
    SlowStart(sys.argv).main()
