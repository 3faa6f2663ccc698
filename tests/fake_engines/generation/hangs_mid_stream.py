"""Sends two words of every stream except the warm-up, then nothing more, and uses no processor time."""

import asyncio
import sys
from collections.abc import AsyncIterator

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class HangsMidStream(FakeLlamaServer):
    """See the file's first line."""

    async def words(self, body: Body) -> AsyncIterator[str]:
        word_count = 0
        async for word in super().words(body):
            if word_count == 2 and self.answered > 1:
                await asyncio.Event().wait()
            word_count += 1
            yield word


if __name__ == "__main__":
    HangsMidStream(sys.argv).main()
