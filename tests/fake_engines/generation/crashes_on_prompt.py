"""Dies in the first computation of a request with the word POISON, as if by a bug; otherwise does everything right. A

request with the word LATER kills it after two words, and one with WAITS waits for one of these.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio import StreamWriter
from collections.abc import AsyncIterator

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class CrashesOnPrompt(FakeLlamaServer):
    """See the file's first lines."""

    async def generate(self, writer: StreamWriter, path: str, body: Body) -> None:
        if "POISON" in json.dumps(body):
            os.kill(os.getpid(), signal.SIGSEGV)
        await super().generate(writer, path, body)

    async def words(self, body: Body) -> AsyncIterator[str]:
        async for word in super().words(body):
            yield word
            if "LATER" in json.dumps(body) and word == " two":
                os.kill(os.getpid(), signal.SIGSEGV)
            if "WAITS" in json.dumps(body):
                await asyncio.Event().wait()


if __name__ == "__main__":
    CrashesOnPrompt(sys.argv).main()
