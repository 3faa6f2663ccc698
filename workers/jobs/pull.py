"""The job process that downloads one model: ``python -m workers.jobs.pull``.

The thread that fetches writes the gauge, which the loop reads.
"""

from __future__ import annotations

import traceback
from typing import Final

from protocol import logs
from protocol.admin import Progress
from protocol.failures import Code, Failure
from protocol.shelf import Pulled, PullFailed, Pulling
from workers.jobs.errand import Errand
from workers.jobs.fetch import Outcome, fetch
from workers.jobs.gauge import Gauge, Reading

TELL_EVERY: Final = 0.1


class Pull:
    """One download, from its order to its result."""

    def __init__(self, errand: Errand) -> None:
        """Wait for the order."""
        self._errand = errand
        self._gauge = Gauge()
        self._told = Reading()
        self._name = ""
        errand.carry_out(Pulling, self._fetch, self._finish)
        errand.loop.every(TELL_EVERY, self._tell)

    def _fetch(self, order: Pulling) -> Outcome:
        self._name = order.name
        try:
            return fetch(order, self._gauge, self._errand.settings.offline)
        except Exception:  # noqa: BLE001 - whatever it was, the waiting callers must be told
            failure = Failure(
                Code.INTERNAL, f"the download of {order.name} failed", model=order.name, detail=traceback.format_exc()
            )
            return Outcome(PullFailed(order.name, failure), [])

    def _tell(self) -> None:
        reading = self._gauge.reading
        if reading != self._told:
            self._told = reading
            self._errand.bus.send(Progress(0, self._name, *reading))

    def _finish(self, outcome: Outcome) -> None:
        result, troubles = outcome
        log = logs.get(model=result.name)
        for kind, problem in troubles:
            log.warning("source failed", source=kind, reason=str(problem), detail=problem.detail)
        if isinstance(result, Pulled):
            self._tell()
            log.debug("files are here", files=result.files)
        else:
            log.debug("download failed", reason=result.failure.message, detail=result.failure.detail)
        self._errand.end(result)


def main() -> None:
    """Run one job to its end."""
    errand = Errand()
    Pull(errand)
    errand.run()


if __name__ == "__main__":
    main()
