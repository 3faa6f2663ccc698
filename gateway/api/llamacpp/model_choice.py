"""Which model a request means: ``model`` in the query or in the body; without either, the one used last. Pure."""

from __future__ import annotations

import falcon

from protocol.failures import invalid


def chosen_model(req: falcon.Request, named: str | None = None) -> str:
    """Return the model's name, empty for the last used model that serves the endpoint. ``named``: the name in the body.

    Raises ``invalid_request`` if query and body name different models.
    """
    queried: str = req.get_param("model", default="")
    if named and queried and named != queried:
        raise invalid("`model` in the query and `model` in the body name different models", "model")
    return named or queried
