"""The servers that tests of faults share: each test leaves them with whatever it has killed replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.conftest import StartServer
from tests.fake_engines.llama_server import program_by_model
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

_LOOP: Final = "extra.tiny-loop"
_MANY: Final = 10_000


@pytest.fixture(scope="session")
def faulty_server(
    start_session_server: StartServer, no_downloads: Callable[[pytest.MonkeyPatch], None]
) -> LemonbusServer:
    """A server with two gateways whose engines may die as often as tests kill them: the breaker has a test of its own.

    The context is large enough for a generation that ends only if it is stopped.
    """
    with pytest.MonkeyPatch.context() as patch:
        no_downloads(patch)
        return start_session_server("tiny-loop", "tiny-slow", "tiny-chat", breaker_deaths=_MANY, ctx_size=65_536)


@pytest.fixture
def loop_server(faulty_server: LemonbusServer) -> LemonbusServer:
    """:func:`faulty_server` with tiny-loop loaded and both gateways, however the last test left it."""
    wait_for(lambda: len(faulty_server.gateway_pids()) == 2, "both gateways serve")
    loaded = faulty_server.client.post("/v1/load", {"model_name": _LOOP})
    assert loaded.status == 200, loaded
    return faulty_server


@pytest.fixture(scope="session")
def crashing_server(
    start_session_server: StartServer,
    no_downloads: Callable[[pytest.MonkeyPatch], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> LemonbusServer:
    """A server whose engines die of a prompt that has the word POISON; that of tiny-loop drops its first connection."""
    names = {"tiny-loop": "drops_connection"}
    engine = program_by_model(tmp_path_factory.mktemp("engine"), names, "crashes_on_prompt")
    with pytest.MonkeyPatch.context() as patch:
        no_downloads(patch)
        return start_session_server(
            "tiny-chat", "tiny-loop", llamacpp_backend="system", llama_server=engine, slots=4, breaker_deaths=_MANY
        )
