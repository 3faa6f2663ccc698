"""Kills itself on a request that contains the word POISON, in its first computation; else does everything right."""

import json
import os
import signal
import sys
from asyncio import StreamWriter

from tests.engines.engine import Body, Engine


class Poison(Engine):
    """See the file's first line."""

    async def generate(self, writer: StreamWriter, path: str, body: Body) -> None:
        if "POISON" in json.dumps(body):
            os.kill(os.getpid(), signal.SIGKILL)
        await super().generate(writer, path, body)


if __name__ == "__main__":
    Poison(sys.argv).main()
