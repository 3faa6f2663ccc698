"""An inference request as an API family makes it, for the gateway's side of the bus, and its limit of tokens. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.messages.events import Outcome
from protocol.models.sampling import TOKEN_LIMIT_FIELDS

MAX_TOKEN_LIMIT: Final = 10**12


class InferenceRequest(msgspec.Struct, frozen=True):
    """An inference request as an API family makes it.

    ``body``: an OpenAI request for ``endpoint`` (see ``protocol.messages.work.SubmitRequest``), with the client's name
    for the ``model`` in it. ``weight``: slots that it uses; 0 for reads. ``label``: the request id. ``ttl``,
    ``context``, ``earlier``, ``more``, ``after``, ``address``, ``digest``, ``via``: as in ``SubmitRequest``.
    ``preparation`` and ``answer_stream`` set the last six.
    ``names``: the names of fields of ``body`` in the client's request, where they differ.
    """

    endpoint: str
    model: str
    body: bytes
    label: str = ""
    stream: bool = False
    weight: int = 1
    query: str = ""
    ttl: float | None = None
    context: int = 0
    earlier: Outcome | None = None
    more: bool = False
    after: int = 0
    names: Mapping[str, str] = {}
    address: str = ""
    digest: str = ""
    via: list[str] = []


_decode: Final = msgspec.json.Decoder(
    msgspec.defstruct("_Limits", [(name, Any, None) for name in TOKEN_LIMIT_FIELDS])
).decode


def token_limit(body: bytes, answers: int) -> int:
    """Return the tokens of all ``answers`` of a request together, 0 if it does not say."""
    try:
        limits = _decode(body)
    except DECODE_ERRORS:
        return 0
    each = max((limit for limit in msgspec.structs.astuple(limits) if type(limit) is int), default=0)
    return max(0, min(MAX_TOKEN_LIMIT, each * max(1, answers)))
