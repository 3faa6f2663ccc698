"""Never finishes reading the prompt cache of a slot."""

import asyncio
import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class SlotRestoreHangs(FakeLlamaServer):
    """See the file's first line."""

    async def slot_file(self, writer: StreamWriter, slot: int, query: str, body: Body) -> None:
        if query == "action=restore":
            await asyncio.Event().wait()
        await super().slot_file(writer, slot, query, body)


if __name__ == "__main__":
    SlotRestoreHangs(sys.argv).main()
