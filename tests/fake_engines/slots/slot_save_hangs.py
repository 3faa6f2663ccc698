"""Writes the prompt cache of slot 0, and never finishes the next one."""

import asyncio
import sys
from asyncio import StreamWriter
from pathlib import Path

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class SlotSaveHangs(FakeLlamaServer):
    """See the file's first line."""

    async def slot_file(self, writer: StreamWriter, slot: int, query: str, body: Body) -> None:
        if query == "action=save" and slot:
            with (Path(self.argument("--slot-save-path", "")) / body["filename"]).open("wb") as file:
                while True:
                    file.write(b"y" * 4096)
                    file.flush()
                    await asyncio.sleep(0.01)
        await super().slot_file(writer, slot, query, body)


if __name__ == "__main__":
    SlotSaveHangs(sys.argv).main()
