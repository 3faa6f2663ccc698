"""Whether new requests are admitted, and the failures that they get if not."""

from __future__ import annotations

import enum
from typing import Final

from protocol.failures import Code, Failure


class AdmissionState(enum.Enum):
    """Whether new requests are admitted."""

    STARTING = "starting"
    OPEN = "ok"
    DRAINING = "draining"
    LOST = "supervisor_lost"


ADMISSION_FAILURES: Final = {
    AdmissionState.STARTING: Failure(Code.STARTING, "the server is starting", retry_after=1),
    AdmissionState.DRAINING: Failure(Code.DRAINING, "the server is stopping", retry_after=5),
    AdmissionState.LOST: Failure(Code.SUPERVISOR_LOST, "the server lost its supervisor and is stopping", retry_after=5),
}
