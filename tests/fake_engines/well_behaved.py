"""Does everything right."""

import sys

from tests.fake_engines.llama_server import FakeLlamaServer

if __name__ == "__main__":
    FakeLlamaServer(sys.argv).main()
