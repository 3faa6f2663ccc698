"""Sends pieces of a megabyte, ``max_tokens`` or sixty-four of them, as fast as they are read."""

import sys
from collections.abc import AsyncIterator

from tests.fake_engines.llama_server import Body, FakeLlamaServer

PIECE = "x" * 1_000_000
PIECES = 64


class LargeOutput(FakeLlamaServer):
    """See the file's first line."""

    async def words(self, body: Body) -> AsyncIterator[str]:
        if self.answered == 1:
            async for word in super().words(body):
                yield word
            return
        for _ in range(int(body.get("max_tokens") or PIECES)):
            yield PIECE


if __name__ == "__main__":
    LargeOutput(sys.argv).main()
