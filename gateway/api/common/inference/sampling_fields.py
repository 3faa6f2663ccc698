"""The sampling fields with the same name, meaning and range in several APIs, and in requests for engines. Pure."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Fraction = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class SamplingFields(msgspec.Struct, kw_only=True):
    """OpenAI's fields, and llama-server's extensions of them."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    min_p: Fraction | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    repeat_penalty: Annotated[float, Meta(ge=1, le=2)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: int | None = None


def given_sampling(request: msgspec.Struct) -> dict[str, Any]:
    """Return the sampling fields of a request, for the body that goes to an engine.

    ``request`` has all fields of :class:`SamplingFields`, but a struct cannot inherit from that and from another struct
    with fields.
    """
    names = SamplingFields.__struct_fields__
    return {name: value for name in names if (value := getattr(request, name)) is not None}
