"""Takes far more memory than any model of its size should need, and then never listens."""

import asyncio
import sys

from tests.fake_engines.startup.large_engine import LargeEngine


class LargeLoad(LargeEngine):
    """See the file's first line."""

    async def load(self) -> None:
        await super().load()
        await asyncio.Event().wait()


if __name__ == "__main__":
    LargeLoad(sys.argv).main()
