"""Was built for another processor: becomes ready, and dies by SIGILL in its first computation."""

import os
import signal
import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class IllegalInstruction(FakeLlamaServer):
    """See the file's first line."""

    async def generate(self, _writer: StreamWriter, _path: str, _body: Body) -> None:
        os.kill(os.getpid(), signal.SIGILL)


if __name__ == "__main__":
    IllegalInstruction(sys.argv).main()
