"""Sampling options of a request: its own, else the defaults that were set. Pure.

A request may also use the documents' names for these (``max_length``, ``min_length``, ``do_sample``).  Other
options are left to the engine; its command line sets its defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from protocol.models import sampling
from protocol.models.sampling import SamplingValue

Fields = dict[str, msgspec.Raw]

TOKEN_LIMIT_FIELDS: Final = ("max_completion_tokens", "max_tokens", "n_predict")
"""Names of the answer's token limit in the internal format; a request with one of them gets no default limit."""
_LEMONADE_FIELDS: Final = frozenset({"max_length", "min_length", "do_sample"})
_NULL: Final = msgspec.Raw(b"null")


def apply_sampling_defaults(fields: Fields, defaults: Mapping[str, SamplingValue], names: Mapping[str, str]) -> bool:
    """Put the sampling defaults into a request; return whether that changed it.

    ``names``: documented parameter → the engine's name; the engine does not have the parameters that are missing.
    Raises ``invalid_request`` for a wrong value under one of the documents' names.
    """
    if not defaults and _LEMONADE_FIELDS.isdisjoint(fields):
        return False
    own = sampling.check_params(
        {name: msgspec.json.decode(fields.pop(name)) for name in _LEMONADE_FIELDS if name in fields}
    )
    given = {name for name, raw in fields.items() if raw != _NULL}
    chosen = {name: value for name, value in defaults.items() if name not in given}
    if own.get("do_sample") is False or (own.get("do_sample") is None and chosen.get("do_sample") is False):
        greedy = own.get("do_sample") is False or "temperature" not in given
        chosen |= {"temperature": 0} if greedy else {}
    chosen.pop("do_sample", None)
    chosen |= {name: value for name in ("min_length", "max_length") if (value := own.get(name)) is not None}
    if not given.isdisjoint(TOKEN_LIMIT_FIELDS):
        chosen.pop("max_length", None)
    for name, value in chosen.items():
        if name in names:
            fields[names[name]] = msgspec.Raw(msgspec.json.encode(value))
    return True
