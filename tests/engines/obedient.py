"""Does everything right."""

import sys

from tests.engines.engine import Engine

if __name__ == "__main__":
    Engine(sys.argv).main()
