"""The supervisor of a worker or a job under test: the ROUTER of the bus, and a process that can be killed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import zmq

from protocol.wire import endpoints, envelope


class SupervisorStandIn:
    """One supervisor; when it has died, a test makes another one."""

    def __init__(self, runtime: Path, *, mortal: bool = False) -> None:
        """Bind the bus. ``mortal``: the supervisor has a process of its own, for :meth:`die`; otherwise it has the pid of the test."""
        self._process = subprocess.Popen(["sleep", "600"]) if mortal else None
        self.pid = self._process.pid if self._process else os.getpid()
        self._context = zmq.Context()
        self.router: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.router.setsockopt(zmq.LINGER, 0)
        self.router.bind(endpoints.bus(runtime))

    def send(self, peer: str, message: Any, payload: bytes = b"") -> None:
        self.router.send_multipart([peer.encode(), envelope.encode(message, payload)])

    def die(self) -> None:
        """End, and discard unread messages; messages that were sent before still arrive."""
        self.router.close(1000)
        self._context.term()
        self._kill()

    def close(self) -> None:
        self._context.destroy(0)
        self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
