"""Says a megabyte a piece, ``max_tokens`` or sixty-four times, as fast as it is read."""

import sys
from collections.abc import AsyncIterator

from tests.engines.engine import Body, Engine

PIECE = "x" * 1_000_000
PIECES = 64


class Floods(Engine):
    """See the file's first line."""

    async def words(self, body: Body) -> AsyncIterator[str]:
        if self.answered == 1:
            async for word in super().words(body):
                yield word
            return
        for _ in range(int(body.get("max_tokens") or PIECES)):
            yield PIECE


if __name__ == "__main__":
    Floods(sys.argv).main()
