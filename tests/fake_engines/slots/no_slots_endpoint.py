"""Answers ``/slots`` with 501, as llama-server does with ``--no-slots``."""

import sys
from asyncio import StreamReader, StreamWriter

from tests.fake_engines.llama_server import FakeLlamaServer, answer, read


class NoSlotsEndpoint(FakeLlamaServer):
    """See the file's first line."""

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        while (request := await read(reader)) is not None:
            path = request[1]
            settings = {"n_ctx": self.context // self.slots}
            if path == "/slots":
                answer(writer, 501, {"error": {"code": 501, "message": "This server does not support slots endpoint."}})
            else:
                answer(writer, 200, {"total_slots": self.slots, "default_generation_settings": settings})
            await writer.drain()
        writer.close()


if __name__ == "__main__":
    NoSlotsEndpoint(sys.argv).main()
