"""Does not listen before it is continued (SIGCONT), which a test may repeat until it is ready."""

import asyncio
import signal
import sys

from tests.fake_engines.llama_server import FakeLlamaServer


class SlowStart(FakeLlamaServer):
    """See the file's first line."""

    async def load(self) -> None:
        continued = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, continued.set)
        await continued.wait()


if __name__ == "__main__":
    SlowStart(sys.argv).main()
