"""Refuses ``--swa-full`` as llama-server refuses an unknown argument; otherwise does everything right."""

import sys

from tests.fake_engines.llama_server import FakeLlamaServer

if __name__ == "__main__":
    if "--swa-full" in sys.argv:
        sys.stderr.write("error: invalid argument: --swa-full\n")
        sys.exit(1)
    FakeLlamaServer(sys.argv).main()
