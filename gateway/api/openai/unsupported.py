"""OpenAI's routes that are not supported."""

from __future__ import annotations

from gateway.api.common.unsupported import unsupported

vary_image = unsupported(
    *("POST", "images/variations", "variations of pictures are"), "no recipe has them; images/edits changes a picture"
)
