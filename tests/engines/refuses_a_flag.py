"""Refuses ``--frobnicate`` as llama-server refuses an argument that it does not know; else does everything right."""

import sys

from tests.engines.engine import Engine

if __name__ == "__main__":
    if "--frobnicate" in sys.argv:
        sys.stderr.write("error: invalid argument: --frobnicate\n")
        sys.exit(1)
    Engine(sys.argv).main()
