"""The gateway's listening socket: bound before any process is started; and why that failed."""

from __future__ import annotations

import errno
import socket
import time
from typing import Final

from protocol.config.settings import Settings
from protocol.failures import Code, Failure

BIND_TIMEOUT_S: Final = 2.0

_NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_PERMISSION_ERRORS: Final = frozenset({errno.EACCES, errno.EPERM})


def bind_listener(settings: Settings, patience: float = BIND_TIMEOUT_S) -> socket.socket:
    """Bind the gateway's listener; raises the failure of :func:`bind_failure`.

    ``patience``: seconds for which an address that is in use is tried again.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as problem:
        raise bind_failure(problem, settings).raised() from problem
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(listener, settings, patience)
        listener.listen(4096)
    except OSError as problem:
        listener.close()
        raise bind_failure(problem, settings).raised() from problem
    listener.set_inheritable(True)
    return listener


def bind_failure(problem: OSError, settings: Settings) -> Failure:
    """Return ``conflict`` for a temporary cause, and ``invalid_request`` if a setting must be changed."""
    reason = problem.strerror or str(problem)
    failed = f"cannot listen on {settings.host}:{settings.port}: {reason}"
    if isinstance(problem, socket.gaierror):
        if problem.errno == socket.EAI_AGAIN:
            return Failure(Code.CONFLICT, failed)
        message = f"host {settings.host} is no address, and no name that can be resolved: {reason}"
        return Failure(Code.INVALID_REQUEST, message, param="host")
    if problem.errno in _NO_SUCH_ADDRESS:
        message = f"host {settings.host} is no address of this machine: {reason}"
        return Failure(Code.INVALID_REQUEST, message, param="host")
    if problem.errno in _PERMISSION_ERRORS:
        message = f"{failed}; low ports are not for every user: choose another --port, above 1023"
        return Failure(Code.INVALID_REQUEST, message, param="port")
    if problem.errno == errno.EADDRINUSE:
        failed += "; stop what listens there, or choose another port"
    return Failure(Code.CONFLICT, failed)


def _bind(listener: socket.socket, settings: Settings, patience: float) -> None:
    """Bind, and try again for a while: gateways of a server that was just killed still hold the address."""
    end = time.monotonic() + patience
    while True:
        try:
            listener.bind((settings.host, settings.port))
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return
