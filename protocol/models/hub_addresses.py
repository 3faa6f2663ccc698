"""Addresses of a Hugging Face hub as checkpoints: people paste what their browser shows. Pure, except for HF_ENDPOINT.

``https://huggingface.co/OWNER/REPO[/(tree|blob|resolve|raw)/main[/PATH]][:VARIANT]``, also of ``hf.co`` and of the hub
that ``HF_ENDPOINT`` names. ``hf.co/`` before a checkpoint needs no ``https://``.
"""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import unquote, urlsplit

from protocol.failures import invalid

REVISION: Final = "main"
"""The only revision that is downloaded."""
_HOSTS: Final = ("huggingface.co", "www.huggingface.co", "hf.co")
_ADDRESS: Final = re.compile(r"(?:https?://)?([^/\s]+)/(.*)", re.DOTALL)
_PAGE: Final = re.compile(r"([^/:]+/[^/:]+)(?:/(tree|blob|resolve|raw)/([^/]+)(?:/(.*))?)?(?::(.*))?", re.DOTALL)


def checkpoint_from_address(text: str) -> str:
    """Return the checkpoint that an address of a hub means.

    Any other text is returned unchanged, but without ``hf:`` before it.

    Raises ``invalid_request`` for a page that is not a repository, and for a revision other than ``main``.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or found[1].lower() not in _hosts():
        return text.removeprefix("hf:")
    path = re.split(r"[?#]", found[2], maxsplit=1)[0].rstrip("/")
    page = _PAGE.fullmatch(unquote(path))
    if page is None:
        raise invalid("this address of a hub is not a page of a repository: /OWNER/REPO, or a file of it", "checkpoint")
    repo, _, revision, file, variant = page.groups()
    if revision not in (None, REVISION):
        raise invalid(f"the address names a revision: only {REVISION} can be downloaded", "checkpoint")
    chosen = variant or file
    return f"{repo}:{chosen}" if chosen else repo


def _hosts() -> tuple[str, ...]:
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "")).netloc.lower()
    return (*_HOSTS, endpoint) if endpoint else _HOSTS
