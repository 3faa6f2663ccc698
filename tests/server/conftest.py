"""Servers that several modules of this folder share, one in each test process."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest

from tests.conftest import StartServer
from tests.support.server import LemonbusServer

KEY = "k3y-/+=,two"
ADMIN_KEY = "adm1n-k3y"
SMALL_LIMIT = 200
"""Open files that :func:`keyed_server` may have before it raises its limit."""


@pytest.fixture(scope="session")
def keyed_server(
    start_session_server: StartServer, no_downloads: Callable[[pytest.MonkeyPatch], None]
) -> LemonbusServer:
    """A server with keys, in its settings and in its environment, that was started with a small limit of open files.

    Its tests load and unload every tiny model and write the file of keys as they need.
    """
    variables = {"LEMONBUS_API_KEY": KEY, "LEMONADE_ADMIN_API_KEY": ADMIN_KEY}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pytest.MonkeyPatch.context() as patch:
        no_downloads(patch)
        resource.setrlimit(resource.RLIMIT_NOFILE, (SMALL_LIMIT, hard))
        try:
            return start_session_server(
                api_key=KEY, admin_api_key=ADMIN_KEY, environment=variables, max_loaded_models=12
            )
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
