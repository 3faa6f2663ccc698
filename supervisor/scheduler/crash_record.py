"""Which requests an engine died of recently, and what is refused because of it. Pure: times are arguments.

A request that kills its engine costs all clients of the model a load. So it is remembered for a while: it is refused if
the same client sends it again, and a client with several such requests may send none to the model. Only the first
death that a client causes in this time counts against the model's breaker. So a single client cannot close the model to
others, while a model that dies of every request is still found out, by several clients. If requests of several clients
may have caused a death, it counts only if none of these clients was suspected before. Otherwise a client that always
hangs up, and is therefore never tried again alone, could close the model to others without being found out.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import msgspec

from protocol.failures import Code, Failure, invalid
from protocol.messages.work import SubmitRequest

REMEMBERED_S: Final = 600.0
MAX_CRASHES: Final = 3
"""A client with this many within ``REMEMBERED_S`` may send no request to the model until the first of them is forgotten."""
MAX_REMEMBERED: Final = 1024


class RequestOrigin(NamedTuple):
    """The client of a request, and the request; empty where unknown."""

    client: str = ""
    """The API key's name or, on a server without keys, the client's address."""
    digest: str = ""
    """See :class:`~protocol.messages.work.SubmitRequest`."""


class _Crash(NamedTuple):
    model: str
    origin: RequestOrigin
    at: float


def origin_of(request: SubmitRequest) -> RequestOrigin:
    """Return the client of a request, and the request."""
    return RequestOrigin(request.caller.key if request.caller else request.address, request.digest)


class CrashRecord:
    """The deaths of all models' engines that requests caused."""

    def __init__(self) -> None:
        """Nothing has died."""
        self._crashes: deque[_Crash] = deque(maxlen=MAX_REMEMBERED)
        """Deaths whose request is known."""
        self._suspicions: deque[_Crash] = deque(maxlen=MAX_REMEMBERED)
        """Deaths that requests of several clients may have caused, once for each request."""

    def note(self, model: str, causes: list[RequestOrigin], now: float) -> bool:
        """Note the requests that may have killed an engine; return whether its death counts against the model.

        Of several requests, one is the reason. Each whose client still waits is tried again alone, so the reason will
        be found.
        """
        clients = {cause.client for cause in causes}
        if not clients or "" in clients:
            return True
        if len(clients) == 1 < len(causes):
            return False
        before = self._crashes if len(causes) == 1 else self._suspicions
        first = not any(_of(before, model, client, now) for client in clients)
        before.extend(_Crash(model, cause, now) for cause in causes)
        return first

    def forget(self, model: str) -> None:
        """Forget the deaths of a model's engine: it is loaded explicitly, or was deleted."""
        for deaths in (self._crashes, self._suspicions):
            kept = [each for each in deaths if each.model != model]
            deaths.clear()
            deaths.extend(kept)

    def refusal(self, model: str, request: SubmitRequest, now: float) -> Failure | None:
        """Return why a request to a model is refused because of earlier ones, None if it is not."""
        if not self._crashes:
            return None
        origin = origin_of(request)
        crashes = _of(self._crashes, model, origin.client, now)
        same = [each for each in crashes if each.origin == origin and origin.digest]
        if same:
            left = same[-1].at + REMEMBERED_S - now
            reason = (
                f"The engine of model {model} died of this request, or of one with the same grammar or schema, "
                f"{now - same[-1].at:.0f} s ago: it is refused for {left:.0f} s more. Change it"
            )
            return msgspec.structs.replace(invalid(reason).failure, model=model)
        if len(crashes) < MAX_CRASHES:
            return None
        wait = crashes[-MAX_CRASHES].at + REMEMBERED_S - now
        named = f"the API key {origin.client}" if request.caller else f"the address {origin.client}"
        reason = (
            f"The engine of model {model} died of {len(crashes)} requests of {named} within {REMEMBERED_S:.0f} s: "
            f"it may send none to this model for {wait:.0f} s"
        )
        return Failure(Code.RATE_LIMITED, reason, model=model, retry_after=wait)


def _of(deaths: deque[_Crash], model: str, client: str, now: float) -> list[_Crash]:
    """Forget old deaths, and return those of a model that a client's requests caused, oldest first."""
    while deaths and deaths[0].at <= now - REMEMBERED_S:
        deaths.popleft()
    return [each for each in deaths if each.model == model and each.origin.client == client]
