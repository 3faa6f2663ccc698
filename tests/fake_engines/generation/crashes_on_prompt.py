"""Kills itself on a request that contains the word POISON, in its first computation; else does everything right."""

import json
import os
import signal
import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class CrashesOnPrompt(FakeLlamaServer):
    """See the file's first line."""

    async def generate(self, writer: StreamWriter, path: str, body: Body) -> None:
        if "POISON" in json.dumps(body):
            os.kill(os.getpid(), signal.SIGKILL)
        await super().generate(writer, path, body)


if __name__ == "__main__":
    CrashesOnPrompt(sys.argv).main()
