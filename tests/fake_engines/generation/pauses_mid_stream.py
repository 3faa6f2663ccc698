"""Sends three words of every answer, and the others when it is continued (SIGCONT): for streams that must be running

when a test stops the engine. However long the test takes to stop it, it uses no processor time until then.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator

from tests.fake_engines.generation.slow_generation import COUNT
from tests.fake_engines.llama_server import Body, FakeLlamaServer

BEFORE = 3
"""Words that it says before it is continued."""


class PausesMidStream(FakeLlamaServer):
    """See the file's first line."""

    def __init__(self, words: list[str]) -> None:
        super().__init__(words)
        self._continued = asyncio.Event()

    async def load(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, self._continue)

    def _continue(self) -> None:
        """Continue all answers that have begun."""
        self._continued.set()
        self._continued = asyncio.Event()

    async def words(self, body: Body) -> AsyncIterator[str]:
        continued = self._continued
        for number in range(1 if self.answered == 1 else int(body.get("max_tokens") or COUNT)):
            if number == BEFORE:
                await continued.wait()
            await asyncio.sleep(0.005)
            yield f" {number}"


if __name__ == "__main__":
    PausesMidStream(sys.argv).main()
