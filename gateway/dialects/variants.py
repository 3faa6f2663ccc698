"""``pull/variants``: what can be pulled of a Hugging Face repository."""

from __future__ import annotations

import falcon
import msgspec

from gateway.dialects.naming import LONGEST_NAME
from gateway.house import House
from protocol import checkpoints
from protocol.checkpoints import HubPlace
from protocol.failures import invalid
from protocol.shelf import ListVariants, Variants

KEY = "checkpoint"


def repository(given: str) -> str:
    """Return the checkpoint if it is a repository of a hub; raises ``invalid_request``."""
    if not given:
        raise invalid(f"`{KEY}` is required, e.g. ?{KEY}=unsloth/Qwen3-8B-GGUF", KEY)
    place = checkpoints.parse(given) if "/" in given and len(given) <= LONGEST_NAME else None
    if not isinstance(place, HubPlace) or place.variant:
        raise invalid(f"`{KEY}` must be owner/repo of a Hugging Face hub, not {checkpoints.printable(given)!r}", KEY)
    return given


class PullVariants:
    """The models in a repository."""

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """At most five quantizations, the best known first, with what registering them wants."""
        checkpoint = repository(req.get_param(KEY, default=""))
        report = self._house.call(req.env, lambda number: ListVariants(number, checkpoint), Variants)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(report)
