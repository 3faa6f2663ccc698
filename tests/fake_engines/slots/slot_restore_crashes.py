"""Dies while it reads the prompt cache of a slot, as llama-server does for a truncated file."""

import os
import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class SlotRestoreCrashes(FakeLlamaServer):
    """See the file's first line."""

    async def slot_file(self, writer: StreamWriter, slot: int, query: str, body: Body) -> None:
        if query == "action=restore":
            os.abort()
        await super().slot_file(writer, slot, query, body)


if __name__ == "__main__":
    SlotRestoreCrashes(sys.argv).main()
