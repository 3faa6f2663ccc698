"""Takes far more memory than any model of its size should need: 300 MiB before it listens."""

import sys

from tests.fake_engines.llama_server import FakeLlamaServer

SIZE = 300 << 20


class LargeEngine(FakeLlamaServer):
    """See the file's first line."""

    async def load(self) -> None:
        self.held = b"x" * SIZE


if __name__ == "__main__":
    LargeEngine(sys.argv).main()
