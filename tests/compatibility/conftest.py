"""Fixtures for tests of the documented requests: servers and their fake hubs, reset before each test or each module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.cli.main import main
from tests.compatibility.backend_installation import CUDA, NAME, RELEASE, VULKAN, release_server_with_pins
from tests.compatibility.flm_on_npu import MODEL, npu_server
from tests.compatibility.hub_server import HubServer, ids, point_to, pull, running_hub
from tests.conftest import StartServer, server_starter
from tests.fake_engines import flm
from tests.support.fakes import driver_tools
from tests.support.fakes.hub import Hub
from tests.support.fakes.machines import FakeMachine, laptop
from tests.support.fakes.release_server import ReleaseServer
from tests.support.ports import free_port
from tests.support.server import LemonbusServer

RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="package")
def start_package_server() -> Iterator[StartServer]:
    """Starts servers that end when a test process has finished this folder, because even an idle server costs processor time."""
    with ExitStack() as stack:
        yield server_starter(stack)


@pytest.fixture(scope="session")
def session_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """The hub of all servers that use one."""
    with running_hub(tmp_path_factory.mktemp("repositories")) as hub:
        yield hub


@pytest.fixture(scope="package")
def package_hub_server(
    session_hub: Hub,
    session_releases: ReleaseServer,
    tmp_path_factory: pytest.TempPathFactory,
    start_package_server: StartServer,
) -> HubServer:
    """A server on a machine without a GPU and an NPU, with its hub and a pinned release, for all modules."""
    folder = tmp_path_factory.mktemp("hub")
    settings = {
        "offline": False,
        "machine_dir": str(FakeMachine(folder / "machine").root),
        "backend_releases": [session_releases.pin(":".join(VULKAN.values()), RELEASE, NAME)],
    }
    with pytest.MonkeyPatch.context() as patch:
        point_to(patch, session_hub, folder)
        server = start_package_server("tiny-chat", "tiny-loop", **settings)
    return HubServer(server, session_hub, folder)


@pytest.fixture
def hub_server(package_hub_server: HubServer, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    """A server with nothing registered, downloaded or loaded, and a hub without faults.

    Other servers that the test starts use the same hub and cache.
    """
    point_to(monkeypatch, package_hub_server.hub, package_hub_server.folder)
    package_hub_server.reset()
    return package_hub_server


@pytest.fixture(scope="module")
def module_hub_server(package_hub_server: HubServer) -> HubServer:
    """The same, but the tests of a module find what earlier tests have downloaded and loaded."""
    package_hub_server.reset()
    return package_hub_server


@pytest.fixture
def server(hub_server: HubServer) -> LemonbusServer:
    return hub_server.server


@pytest.fixture
def hub(hub_server: HubServer) -> Hub:
    return hub_server.hub


@pytest.fixture
def folder(hub_server: HubServer) -> Path:
    return hub_server.folder


@pytest.fixture(scope="package")
def offline_server(
    package_hub_server: HubServer, session_releases: ReleaseServer, start_package_server: StartServer
) -> LemonbusServer:
    """An offline server with the same hub's cache and pinned releases: it may ask neither the hub nor the release server."""
    with pytest.MonkeyPatch.context() as patch:
        point_to(patch, package_hub_server.hub, package_hub_server.folder)
        pins = [session_releases.pin(":".join(VULKAN.values()), RELEASE, NAME)]
        return start_package_server("tiny-chat", backend_releases=pins, gateway_workers=1)


@pytest.fixture(scope="package")
def package_npu_server(
    session_hub: Hub, start_package_server: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LemonbusServer, Path]]:
    """A server with flm, and the folder of that, for all modules."""
    with npu_server(start_package_server, session_hub, tmp_path_factory.mktemp("flm")) as server_and_home:
        yield server_and_home


@pytest.fixture
def flm_home(package_npu_server: tuple[LemonbusServer, Path]) -> Path:
    """The folder of the modules' flm, with its faults removed."""
    flm.set_behaviour(package_npu_server[1])
    return package_npu_server[1]


@pytest.fixture
def flm_server(package_npu_server: tuple[LemonbusServer, Path], flm_home: Path) -> LemonbusServer:
    """The server of the modules, whose flm has its model and no faults."""
    assert flm_home
    if MODEL not in ids(package_npu_server[0]):
        assert pull(package_npu_server[0], model_name=MODEL)[0] == 200
    return package_npu_server[0]


@pytest.fixture(scope="session")
def session_releases() -> Iterator[ReleaseServer]:
    with release_server_with_pins() as releases:
        yield releases


@pytest.fixture(scope="session")
def laptop_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The PATH of :func:`laptop_server`, which has no tools."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="package")
def laptop_server(
    session_releases: ReleaseServer,
    start_package_server: StartServer,
    laptop_programs: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> LemonbusServer:
    """A server on the documents' laptop.

    Its hub refuses connections. Its pins are wrong, are for another machine, or name a mirror.
    """
    folder = tmp_path_factory.mktemp("laptop")
    pins = [
        session_releases.pin("llamacpp:vulkan", "b1", NAME, digest="0" * 64),
        session_releases.pin(":".join(CUDA.values()), "b1", "new.tar.gz", url="https://github.com"),
        session_releases.pin("whispercpp:vulkan", "b1", "bad"),
        "nope:cpu@1=http://127.0.0.1/x#sha256=" + "0" * 64,
        "llamacpp:cpu@1=http://127.0.0.1/x#sha256=" + "0" * 64,
    ]
    settings = {"machine_dir": str(laptop(folder / "machine").root), "release_mirror": session_releases.url}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", driver_tools.path(laptop_programs))
        patch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
        patch.setenv("HF_HOME", str(folder / "hf"))
        return start_package_server("tiny-chat", offline=False, backend_releases=pins, gateway_workers=1, **settings)


@pytest.fixture
def lemonbus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunCommand:
    """Run a command for a server, in this process; return its exit code, stdout and stderr."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")

    def run(server: LemonbusServer, *words: str) -> tuple[int, str, str]:
        monkeypatch.setenv("LEMONBUS_URL", f"http://127.0.0.1:{server.port}")
        code = main(list(words))
        output = capsys.readouterr()
        return code, output.out, output.err

    return run
