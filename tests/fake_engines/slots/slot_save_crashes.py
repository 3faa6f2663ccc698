"""Dies while it writes the prompt cache of a slot into a file."""

import os
import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class SlotSaveCrashes(FakeLlamaServer):
    """See the file's first line."""

    async def slot_file(self, writer: StreamWriter, slot: int, query: str, body: Body) -> None:
        if query == "action=save" and slot:
            os.abort()
        await super().slot_file(writer, slot, query, body)


if __name__ == "__main__":
    SlotSaveCrashes(sys.argv).main()
