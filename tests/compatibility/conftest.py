"""Fixtures for tests of the documented requests: servers and their fake hubs, reset before each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.backend_installation import release_server_with_pins
from tests.compatibility.flm_on_npu import MODEL, npu_server
from tests.compatibility.hub_server import HubServer, ids, point_to, pull, running_hub
from tests.conftest import StartServer
from tests.fake_engines import flm
from tests.support.fakes.hub import Hub
from tests.support.fakes.release_server import ReleaseServer
from tests.support.server import LemonbusServer


@pytest.fixture(scope="session")
def session_hub_server(
    tmp_path_factory: pytest.TempPathFactory, start_session_server: StartServer
) -> Iterator[HubServer]:
    """A server and its hub, for all modules."""
    folder = tmp_path_factory.mktemp("hub")
    with running_hub() as hub:
        with pytest.MonkeyPatch.context() as patch:
            point_to(patch, hub, folder)
            server = start_session_server("tiny-chat", offline=False)
        yield HubServer(server, hub, folder)


@pytest.fixture
def hub_server(session_hub_server: HubServer, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    """A server with nothing registered, downloaded or loaded, and a hub without faults.

    Other servers that the test starts find the same hub and cache.
    """
    point_to(monkeypatch, session_hub_server.hub, session_hub_server.folder)
    session_hub_server.reset()
    return session_hub_server


@pytest.fixture
def server(hub_server: HubServer) -> LemonbusServer:
    return hub_server.server


@pytest.fixture
def hub(hub_server: HubServer) -> Hub:
    return hub_server.hub


@pytest.fixture
def folder(hub_server: HubServer) -> Path:
    return hub_server.folder


@pytest.fixture(scope="session")
def session_npu_server(
    start_session_server: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LemonbusServer, Path]]:
    """A server with flm, and the folder of that, for all modules."""
    with npu_server(start_session_server, tmp_path_factory.mktemp("flm")) as server_and_home:
        yield server_and_home


@pytest.fixture
def flm_home(session_npu_server: tuple[LemonbusServer, Path]) -> Path:
    """The folder of the session's flm, which behaves well again."""
    flm.set_behaviour(session_npu_server[1])
    return session_npu_server[1]


@pytest.fixture
def flm_server(session_npu_server: tuple[LemonbusServer, Path], flm_home: Path) -> LemonbusServer:
    """The session's server, where flm has its model and behaves well."""
    assert flm_home
    if MODEL not in ids(session_npu_server[0]):
        assert pull(session_npu_server[0], model_name=MODEL)[0] == 200
    return session_npu_server[0]


@pytest.fixture(scope="module")
def module_releases() -> Iterator[ReleaseServer]:
    with release_server_with_pins() as releases:
        yield releases
