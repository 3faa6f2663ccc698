"""The hub and the release server on loopback that a fuzzed server uses instead of the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.compatibility.backend_installation import NAME, VULKAN, release_server_with_pins
from tests.compatibility.hub_server import hub_with_repositories


@contextmanager
def fakes_on_loopback(folder: Path) -> Iterator[dict[str, Any]]:
    """Make servers that are started meanwhile use them; return the settings that such a server needs."""
    with hub_with_repositories(folder), release_server_with_pins() as releases:
        yield {
            "offline": False,
            "max_loaded_models": 12,
            "ctx_size": 512,
            "gateway_workers": 1,
            "backend_releases": [releases.pin(":".join(VULKAN.values()), "b7869", NAME)],
        }
