"""Sends one word every tenth of a second, a hundred in all: a slow generation that never stalls."""

import asyncio
import sys
from collections.abc import AsyncIterator

from tests.fake_engines.llama_server import Body, FakeLlamaServer

COUNT = 100


def text_of(tokens: int) -> str:
    """Return what it says for ``max_tokens``."""
    return "".join(f" {number}" for number in range(tokens))


class SlowGeneration(FakeLlamaServer):
    """See the file's first line."""

    async def words(self, body: Body) -> AsyncIterator[str]:
        for number in range(1 if self.answered == 1 else int(body.get("max_tokens") or COUNT)):
            await asyncio.sleep(0.1)
            yield f" {number}"


if __name__ == "__main__":
    SlowGeneration(sys.argv).main()
