"""The gateway's listening socket, bound before any process is started; and why that failed."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from typing import Final

from protocol.config.settings import Settings
from protocol.failures import Code, Failure

BIND_TIMEOUT_S: Final = 2.0

_NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_PERMISSION_ERRORS: Final = frozenset({errno.EACCES, errno.EPERM})


def bind_listener(
    settings: Settings, patience: float = BIND_TIMEOUT_S, present_fd: int = -1, *, listens: bool = True
) -> socket.socket:
    """Bind the gateway's listener; raises the failure of :func:`bind_failure`.

    ``patience``: seconds for which an address that is in use is tried again. ``present_fd``: the listener that it takes the place
    of, which may have the same port: 0.0.0.0 in place of 127.0.0.1. ``listens``: False only finds out whether it could.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as problem:
        raise bind_failure(problem, settings).raised() from problem
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with _shared_port(listener, settings.port, present_fd):
            _bind(listener, settings, patience)
            if listens:
                listener.listen(4096)
    except OSError as problem:
        listener.close()
        raise bind_failure(problem, settings).raised() from problem
    listener.set_inheritable(True)
    return listener


def shut_listener(listen_fd: int) -> None:
    """Refuse connections from now on, in whichever process the listener is open. It is not closed: its owner does that."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(listen_fd)) as listener:
        listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _shared_port(listener: socket.socket, port: int, present_fd: int) -> Iterator[None]:
    """Let a socket have the port of our present listener beside it: no other program gets in between the two."""
    if present_fd < 0:
        yield
        return
    with socket.socket(fileno=os.dup(present_fd)) as present:
        sockets = (listener, present) if present.getsockname()[1] == port else ()
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            yield
        finally:
            for each in sockets:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)


def bind_failure(problem: OSError, settings: Settings) -> Failure:
    """Return ``conflict`` for a temporary cause, and ``invalid_request`` if a setting must be changed."""
    reason = problem.strerror or str(problem)
    failed = f"cannot listen on {settings.host}:{settings.port}: {reason}"
    if isinstance(problem, socket.gaierror):
        if problem.errno == socket.EAI_AGAIN:
            return Failure(Code.CONFLICT, failed)
        message = f"host {settings.host} is neither an address nor a name that can be resolved: {reason}"
        return Failure(Code.INVALID_REQUEST, message, param="host")
    if problem.errno in _NO_SUCH_ADDRESS:
        message = f"host {settings.host} is not an address of this machine: {reason}"
        return Failure(Code.INVALID_REQUEST, message, param="host")
    if problem.errno in _PERMISSION_ERRORS:
        message = f"{failed}; low ports are reserved: choose another --port, above 1023"
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
