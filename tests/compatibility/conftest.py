"""Fixtures for tests of the documented requests: servers and their fake hubs, reset before each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.backend_installation import release_server_with_pins
from tests.compatibility.flm_on_npu import MODEL, npu_server
from tests.compatibility.hub_server import HubServer, hub_with_repositories, ids, pull
from tests.conftest import StartServer
from tests.fake_engines import flm
from tests.support.fakes.hub import Hub
from tests.support.fakes.release_server import ReleaseServer
from tests.support.server import LemonbusServer


@pytest.fixture(scope="module")
def module_hub_server(
    tmp_path_factory: pytest.TempPathFactory, start_module_server: StartServer
) -> Iterator[HubServer]:
    """A server and its hub, for all tests of a module."""
    folder = tmp_path_factory.mktemp("hub")
    with hub_with_repositories(folder) as hub:
        yield HubServer(start_module_server("tiny-chat", offline=False), hub, folder)


@pytest.fixture
def hub_server(module_hub_server: HubServer) -> HubServer:
    """The module's server with nothing registered, downloaded or loaded, and a hub without faults."""
    module_hub_server.reset()
    return module_hub_server


@pytest.fixture
def server(hub_server: HubServer) -> LemonbusServer:
    return hub_server.server


@pytest.fixture
def hub(hub_server: HubServer) -> Hub:
    return hub_server.hub


@pytest.fixture
def folder(hub_server: HubServer) -> Path:
    return hub_server.folder


@pytest.fixture(scope="module")
def module_npu_server(
    start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LemonbusServer, Path]]:
    """A server with flm, and the folder of that, for all tests of a module."""
    with npu_server(start_module_server, tmp_path_factory.mktemp("flm")) as server_and_home:
        yield server_and_home


@pytest.fixture
def flm_home(module_npu_server: tuple[LemonbusServer, Path]) -> Path:
    """The folder of the module's flm, which behaves well again."""
    flm.set_behaviour(module_npu_server[1])
    return module_npu_server[1]


@pytest.fixture
def flm_server(module_npu_server: tuple[LemonbusServer, Path], flm_home: Path) -> LemonbusServer:
    """The module's server, where flm has its model and behaves well."""
    assert flm_home
    if MODEL not in ids(module_npu_server[0]):
        assert pull(module_npu_server[0], model_name=MODEL)[0] == 200
    return module_npu_server[0]


@pytest.fixture(scope="module")
def module_releases() -> Iterator[ReleaseServer]:
    with release_server_with_pins() as releases:
        yield releases
