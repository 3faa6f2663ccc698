"""``python -m workers.engine_servers.oga_server``: an HTTP server over ONNX Runtime GenAI."""

from __future__ import annotations

import sys

from protocol.runtime.process_exit import exit_immediately
from workers.engine_servers.oga_server.server import main

if __name__ == "__main__":
    exit_immediately(main(sys.argv[1:]))
