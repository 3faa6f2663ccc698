"""Needs a second and a half until it listens."""

import asyncio
import sys

from tests.engines.engine import Engine


class SlowStart(Engine):
    """See the file's first line."""

    async def load(self) -> None:
        await asyncio.sleep(1.5)


if __name__ == "__main__":
    SlowStart(sys.argv).main()
