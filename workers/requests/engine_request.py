"""Builds the engine's request from the supervisor's `Run`.

A spooled body is read, the configuration's rules for requests of the model are applied, and the backend translates the
result.
"""

from __future__ import annotations

from pathlib import Path

from protocol.failures import Code, Failure
from protocol.messages.work import Run
from protocol.wire import endpoints
from workers.backends.base import Backend
from workers.backends.engine_request import EngineRequest
from workers.backends.request_rules import apply_request_rules


def engine_request(run: Run, body: bytes, backend: Backend, runtime: Path) -> EngineRequest:
    """Return the request for the engine; raises the failure of a request that cannot be sent.

    ``runtime``: the directory with the spool, for a request whose body is in a file.
    """
    if run.spool:
        try:
            body = (endpoints.spool(runtime) / Path(run.spool).name).read_bytes()
        except OSError as problem:
            message = "the file with the request's body is missing"
            raise Failure(Code.INTERNAL, message, detail=str(problem)).raised() from problem
    body = apply_request_rules(backend.rules, run.endpoint, body)
    return backend.request(run.endpoint, run.query, body, run.stream)
