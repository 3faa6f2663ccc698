"""Refuses to write the prompt cache of a slot into a file, like an engine without support for it."""

import sys
from asyncio import StreamWriter

from tests.fake_engines.llama_server import Body, FakeLlamaServer, answer


class SlotSaveFails(FakeLlamaServer):
    """See the file's first line."""

    async def slot_file(self, writer: StreamWriter, slot: int, query: str, body: Body) -> None:
        if query == "action=save":
            answer(writer, 501, {"error": {"code": 501, "message": "This feature is not supported"}})
        else:
            await super().slot_file(writer, slot, query, body)


if __name__ == "__main__":
    SlotSaveFails(sys.argv).main()
