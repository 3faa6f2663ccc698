"""What all tests share."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog

from protocol.runtime import logs
from tests.support import collection, processes, properties
from tests.support.models.tiny_models import adapters
from tests.support.server import LemonbusServer

properties.register_profiles()

collect_ignore = ["cluster"]
"""`make cluster` names the folder, and then it is collected."""

KEY = "k3y-/+=,two"
ADMIN_KEY = "adm1n-k3y"
"""Of :func:`keyed_server`."""
SMALL_LIMIT = 200
"""Open files that :func:`keyed_server` may have before it raises its limit."""

StartServer = Callable[..., LemonbusServer]
_started: list[LemonbusServer] = []


def server_starter(stack: ExitStack, **usual: Any) -> StartServer:
    """Return a function that starts servers, which end with ``stack``. ``usual``: their settings unless a call has others."""

    def opened(*models: str, **settings: Any) -> LemonbusServer:
        server = LemonbusServer(*models, **{**usual, **settings})
        _started.append(server)
        return stack.enter_context(server)

    return opened


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Starts servers (like :class:`LemonbusServer`), which end with the test in an orderly way.

    One gateway process is enough for a single test; servers that many tests share have two.
    """
    with ExitStack() as stack:
        yield server_starter(stack, gateway_workers=1)


@pytest.fixture(scope="module")
def start_module_server() -> Iterator[StartServer]:
    """Starts servers that end with the module."""
    with ExitStack() as stack:
        yield server_starter(stack)


@pytest.fixture(scope="session")
def start_session_server() -> Iterator[StartServer]:
    """Starts servers that several modules share, and that end with the test process."""
    with ExitStack() as stack:
        yield server_starter(stack)


@pytest.fixture(scope="session", autouse=True)
def no_downloads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[pytest.MonkeyPatch], None]]:
    """Hide a developer's downloads and tokens from servers; calling this hides them once more."""
    folder = tmp_path_factory.mktemp("hub")

    def forget(patch: pytest.MonkeyPatch) -> None:
        for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
            patch.delenv(name)
        patch.setenv("HF_HOME", str(folder))
        # All servers of the tests are on this machine.
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, "127.0.0.1,localhost,::1")

    with pytest.MonkeyPatch.context() as patch:
        forget(patch)
        yield forget


@pytest.fixture(scope="session")
def shared_server(
    start_session_server: StartServer, no_downloads: Callable[[pytest.MonkeyPatch], None]
) -> LemonbusServer:
    """The server that all harmless tests of one test process share. It has every tiny model, and all of them fit."""
    with pytest.MonkeyPatch.context() as patch:
        no_downloads(patch)  # the first module that uses it may have a hub of its own
        return start_session_server(max_loaded_models=12)


@pytest.fixture(scope="session")
def changing_server(
    start_session_server: StartServer, no_downloads: Callable[[pytest.MonkeyPatch], None]
) -> LemonbusServer:
    """A server with three models for tests that load, unload and register. Another test may have left it in any state.

    Its engines may read the tiny models' adapters.
    """
    with pytest.MonkeyPatch.context() as patch:
        no_downloads(patch)
        return start_session_server("tiny-chat", "tiny-loop", "tiny-embed", engine_file_dirs=[str(adapters())])


@pytest.fixture
def unloaded_server(changing_server: LemonbusServer) -> LemonbusServer:
    """:func:`changing_server` with nothing loaded, registered or saved."""
    assert changing_server.client.post("/v1/unload", {}).status == 200
    for name in ("user_models.json", "recipe_options.json"):
        (changing_server.home / "state" / name).unlink(missing_ok=True)
    return changing_server


@pytest.fixture(scope="session")
def keyed_server(
    start_session_server: StartServer, no_downloads: Callable[[pytest.MonkeyPatch], None]
) -> LemonbusServer:
    """A server with keys, in its settings and in its environment, started with a small limit of open files.

    Its tests load and unload all tiny models, and write the file of keys as needed.
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


@pytest.fixture
def records() -> Iterator[list[dict[str, Any]]]:
    """The records that this process logs. A test that wants another form or level configures that."""
    found: list[dict[str, Any]] = []
    hook = sys.excepthook
    logs.set_sink(lambda line: found.append(json.loads(line)))
    yield found
    logs.set_sink(None)
    sys.excepthook = hook
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def no_grants_are_left() -> Iterator[None]:
    """After every test, the sum of grants is zero in every server that still runs and was used."""
    yield
    for server in _started:
        if server.used and server.alive:
            server.assert_idle()
            server.used = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the logs of the servers that a failed test uses, or of the last ones."""
    report = yield
    if report.failed:
        used = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, LemonbusServer)]
        for server in used or _started[-2:]:
            report.sections.append(
                (f"log of {server.home.name} after {report.when} of {item.name}", server.last_lines())
            )
    return report


def pytest_sessionfinish() -> None:
    """No process of any server may outlive the tests."""
    left = [process for server in _started for process in processes.of_server(server.runtime)]
    for process in left:
        processes.kill(process.pid)
    assert not left, f"left running: {left}"


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Make the garbage collector ignore objects that live to the end: thousands of tests and everything they import."""
    gc.disable()
    if worker := getattr(session.config, "workerinput", None):
        collection.import_share(session.config, int(worker["workerid"].removeprefix("gw")), worker["workercount"])
    try:
        return (yield)
    finally:
        if sys.version_info < (3, 14):  # frozen objects have no referrers there, which hypothesis asks for
            gc.freeze()
        gc.enable()


def pytest_configure() -> None:
    """The tests may have been started with SIGHUP ignored; the tested servers must not inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def stand_in_ray(tmp_path: Path) -> Path:
    """A folder with a package ``ray``, which leaves the file ``imported`` there when something imports it."""
    folder = tmp_path / "stand-in"
    (folder / "ray").mkdir(parents=True)
    (folder / "ray" / "__init__.py").write_text(f"open({str(folder / 'imported')!r}, 'w').close()")
    return folder
