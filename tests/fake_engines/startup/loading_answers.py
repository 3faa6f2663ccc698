"""Answers three times that it is loading, then is ready."""

import sys

from tests.fake_engines.llama_server import Body, FakeLlamaServer


class LoadingAnswers(FakeLlamaServer):
    """See the file's first line."""

    asked = 0

    def health(self) -> tuple[int, Body]:
        self.asked += 1
        return (200, {"status": "ok"}) if self.asked > 3 else (503, {"error": {"message": "Loading model"}})


if __name__ == "__main__":
    LoadingAnswers(sys.argv).main()
