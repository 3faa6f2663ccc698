"""``python -m workers.engines.oga_server``: an HTTP server over ONNX Runtime GenAI."""

from __future__ import annotations

import sys

from workers.engines.oga_server.server import main
from workers.engines.process_exit import exit_immediately

if __name__ == "__main__":
    exit_immediately(main(sys.argv[1:]))
