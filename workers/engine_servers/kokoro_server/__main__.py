"""``python -m workers.engine_servers.kokoro_server``: speech over ONNX Runtime."""

from __future__ import annotations

import sys

from protocol.runtime.process_exit import exit_immediately
from workers.engine_servers.kokoro_server.server import main

if __name__ == "__main__":
    exit_immediately(main(sys.argv[1:]))
