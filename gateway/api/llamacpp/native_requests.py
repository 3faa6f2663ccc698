"""What requests in llama.cpp's own form share: the model that they mean, and their prompts. Pure."""

from __future__ import annotations

from typing import Annotated, Any

import falcon

from gateway.api.common.operations import NOT_EMPTY
from protocol.failures import invalid

Prompt = str | Annotated[list[Any], NOT_EMPTY] | dict[str, Any]
"""A text, tokens, a mix of both, an object with media, or a list of these."""


def count_native_prompts(prompt: Prompt, field: str) -> int:
    """Return how many prompts there are; raises ``invalid_request`` naming ``field``.

    A list that contains a token number is one prompt. A list of texts, objects and lists is several.
    """
    if not isinstance(prompt, list):
        return 1
    if not prompt:
        raise invalid(f"`{field}` is empty", field)
    if [] in prompt:
        # llama-server never ends such a request if it asks for several completions.
        raise invalid(f"`{field}` has an empty list of tokens in it", field)
    kinds = set(map(type, prompt))
    if int not in kinds:
        if not kinds <= {str, list, dict}:
            raise invalid(f"`{field}` has an entry that is not a prompt", field)
        return len(prompt)
    if not kinds <= {int, str}:
        raise invalid(f"`{field}` mixes token numbers with prompts", field)
    return 1


def chosen_model(req: falcon.Request, named: str | None = None) -> str:
    """Return the model that the query or the body names; empty for the last used model that serves the endpoint. ``named``: the name in the body.

    Raises ``invalid_request`` if query and body name different models.
    """
    queried: str = req.get_param("model", default="")
    if named and queried and named != queried:
        raise invalid("`model` in the query and `model` in the body name different models", "model")
    return named or queried
