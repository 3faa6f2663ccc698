"""Refuses to read the prompt cache of a slot, as llama-server does for an unknown file."""

import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import Body, FakeLlamaServer, answer


class SlotRestoreRefused(FakeLlamaServer):
    """See the file's first line."""

    async def slot_file(self, writer: StreamWriter, slot: int, query: str, body: Body) -> None:
        if query == "action=restore":
            answer(writer, 400, {"error": {"code": 400, "message": "Unable to restore slot"}})
        else:
            await super().slot_file(writer, slot, query, body)


if __name__ == "__main__":
    SlotRestoreRefused(sys.argv).main()
