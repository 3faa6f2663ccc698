"""The job process that asks other servers for their models: ``python -m workers.jobs.list_remotes``."""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from http.client import HTTPException
from typing import Final

import msgspec

from protocol.config.model_settings import RemoteSettings
from protocol.config.settings import Settings
from protocol.failures import DECODE_ERRORS
from protocol.messages.remote_models import (
    MAX_LABELS,
    MAX_MODELS,
    RemoteList,
    RemoteModel,
    RemotesListed,
    StartRemoteListing,
)
from workers.backends.openai_server import KeyUnreadableError, read_key
from workers.backends.registry import DESCRIPTORS
from workers.jobs.job import JobProcess

TIMEOUT_S: Final = 15.0
"""How long a server may take to send its list, if its own ``timeout`` is not shorter."""
REPORT_INTERVAL_S: Final = 0.1
MAX_LIST_BYTES: Final = 4 * 1024 * 1024
MAX_LABEL_LENGTH: Final = 64
_ELSEWHERE: Final = frozenset(recipe for recipe, each in DESCRIPTORS.items() if each.elsewhere)


class _Listed(msgspec.Struct):
    id: str
    labels: list[str] | None = None
    recipe: str | None = None


class _Answer(msgspec.Struct):
    data: list[_Listed]


_answer: Final = msgspec.json.Decoder(_Answer).decode


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows none: the key is for this server alone."""

    def redirect_request(self, *_arguments: object) -> None:
        """Leave a redirection as the answer that it is."""


_opener: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)


def list_models(name: str, remote: RemoteSettings) -> RemoteList:
    """Ask one server for its models; whatever goes wrong is in the result, without the key."""
    try:
        key = read_key(remote)
    except KeyUnreadableError as problem:
        return RemoteList(name, problem=str(problem))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"{remote.url.rstrip('/')}/models", headers=headers)  # noqa: S310 - its type allows http and https only
    try:
        with _opener.open(request, timeout=TIMEOUT_S) as response:
            body = response.read(MAX_LIST_BYTES + 1)
    except urllib.error.HTTPError as problem:
        refused = problem.code in (401, 403)
        return RemoteList(name, problem="it does not accept the key" if refused else f"it answers {problem.code}")
    except OSError as problem:
        return RemoteList(name, problem=f"it cannot be reached ({getattr(problem, 'reason', problem)})"[:300])
    except (HTTPException, ValueError) as problem:
        return RemoteList(name, problem=f"it does not answer as HTTP demands ({type(problem).__name__})")
    if len(body) > MAX_LIST_BYTES:
        return RemoteList(name, problem=f"its list of models has more than {MAX_LIST_BYTES} bytes")
    try:
        return RemoteList(name, listed_models(body))
    except DECODE_ERRORS as problem:
        return RemoteList(name, problem=f"its list of models cannot be read ({problem})"[:300])


def listed_models(body: bytes) -> list[RemoteModel]:
    """Return the models in an answer of ``/v1/models``; raises ``DECODE_ERRORS``.

    A model that the other server itself has from elsewhere is left out: two servers that list each other would do so without end.
    """
    found = [each for each in _answer(body).data if each.recipe not in _ELSEWHERE]
    named = [each for each in found if 0 < len(each.id) <= 200 and each.id.isprintable()]
    return [RemoteModel(each.id, _shown(each.labels or [])) for each in named[:MAX_MODELS]]


def _shown(labels: list[str]) -> list[str]:
    return [label for label in labels if 0 < len(label) <= MAX_LABEL_LENGTH and label.isprintable()][:MAX_LABELS]


def _limit(remote: RemoteSettings) -> float:
    return min(remote.timeout or TIMEOUT_S, TIMEOUT_S)


def list_all(settings: Settings, order: StartRemoteListing, arrived: Callable[[RemoteList], None]) -> RemotesListed:
    """Ask all of them at the same time, and call ``arrived`` with each list, in any thread; return all of them.

    A server that sends without end is not waited for: its thread ends with this process.
    """
    asked = {name: settings.remotes[name] for name in order.remotes if name in settings.remotes}
    listed: dict[str, RemoteList] = {}

    def ask(name: str, remote: RemoteSettings) -> None:
        listed[name] = list_models(name, remote)
        arrived(listed[name])

    threads = [threading.Thread(target=ask, args=each, daemon=True) for each in asked.items()]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread, remote in zip(threads, asked.values(), strict=True):
        thread.join(max(0.0, began + _limit(remote) - time.monotonic()))
    late = {
        name: RemoteList(name, problem=f"it has not sent its list within {_limit(remote):g} s")
        for name, remote in asked.items()
    }
    return RemotesListed(list((late | listed).values()), complete=True)


class ListingJob:
    """One reading of lists, from its order to its result."""

    def __init__(self, job: JobProcess) -> None:
        """Wait for the order."""
        self._job = job
        self._arrived: deque[RemoteList] = deque()
        job.carry_out(StartRemoteListing, lambda order: list_all(job.settings, order, self._arrived.append))
        job.loop.every(REPORT_INTERVAL_S, self._report)

    def _report(self) -> None:
        while self._arrived:
            self._job.report(RemotesListed([self._arrived.popleft()], complete=False))


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    ListingJob(job)
    job.run()


if __name__ == "__main__":
    main()
