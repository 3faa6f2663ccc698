"""Listens, and is loading for ever."""

import sys

from tests.engines.engine import Body, Engine


class NeverReady(Engine):
    """See the file's first line."""

    def health(self) -> tuple[int, Body]:
        return 503, {"error": {"code": 503, "message": "Loading model"}}


if __name__ == "__main__":
    NeverReady(sys.argv).main()
