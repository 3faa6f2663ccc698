"""``pull/variants``: the variants of a model in a Hugging Face repository."""

from __future__ import annotations

import falcon
import msgspec

from gateway.api.common.request_fields import MAX_NAME_LENGTH
from gateway.bus.session import SupervisorSession
from protocol.failures import invalid
from protocol.messages.model_files import ListVariants, Variants
from protocol.models import checkpoints
from protocol.models.checkpoints import HubCheckpoint

CHECKPOINT_PARAMETER = "checkpoint"


def checked_repository(given: str) -> str:
    """Return ``given`` if it names a repository of a hub; raises ``invalid_request``."""
    if not given:
        raise invalid(
            f"`{CHECKPOINT_PARAMETER}` is required, e.g. ?{CHECKPOINT_PARAMETER}=unsloth/Qwen3-8B-GGUF",
            CHECKPOINT_PARAMETER,
        )
    checkpoint = checkpoints.parse(given) if "/" in given and len(given) <= MAX_NAME_LENGTH else None
    if not isinstance(checkpoint, HubCheckpoint) or checkpoint.variant:
        raise invalid(
            f"`{CHECKPOINT_PARAMETER}` must be owner/repo of a Hugging Face hub, not {checkpoints.printable(given)!r}",
            CHECKPOINT_PARAMETER,
        )
    return given


class PullVariantsResource:
    """``GET pull/variants``: what a repository has to download."""

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with at most five quantizations, the best known first, and the fields with which to register one."""
        checkpoint = checked_repository(req.get_param(CHECKPOINT_PARAMETER, default=""))
        report = self._session.call(req.env, lambda number: ListVariants(number, checkpoint), Variants)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(report)
