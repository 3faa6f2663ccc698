"""Listens, and loads forever."""

import sys

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class NeverReady(FakeLlamaServer):
    """See the file's first line."""

    def health(self) -> tuple[int, Body]:
        return 503, {"error": {"code": 503, "message": "Loading model"}}


if __name__ == "__main__":
    NeverReady(sys.argv).main()
