"""Which deaths of engines their requests are suspected of."""

from __future__ import annotations

import pytest

from protocol.failures import Code, Failure
from workers.engine.exit_cause import EngineExit, ExitCause
from workers.worker.engine_failures import by_request


@pytest.mark.parametrize(
    ("ended", "cause", "outgrown", "expected"),
    [
        (None, ExitCause.CRASH, False, True),
        (None, ExitCause.MEMORY, True, True),
        (None, ExitCause.MEMORY, False, False),
        (None, ExitCause.KILLED, True, False),
        (None, ExitCause.OTHER, True, False),
        (Code.OUT_OF_MEMORY, ExitCause.KILLED, False, True),
        (Code.HUNG, ExitCause.CRASH, True, False),
    ],
)
def test_an_engine_that_the_kernel_kills_for_others_died_of_no_request(
    ended: Code | None, cause: ExitCause, outgrown: bool, expected: bool
) -> None:
    failure = Failure(ended, "It was ended") if ended else None
    assert by_request(failure, EngineExit("was killed", "", cause), outgrown=outgrown) is expected
