"""The servers that tests of faults share. When a test ends, everything that it has killed has been replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from tests.conftest import StartServer, server_starter
from tests.fake_engines.llama_server import program, program_by_model
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP: Final = "extra.tiny-loop"
CALM: Final = "extra.calm"
"""The engine ``slow_generation`` sends a word every tenth of a second: its streams last long, and leave the processors idle."""
ENDLESS: Final = 60_000
"""Tokens of a stream of :func:`faulty_server` that a test ends: its real engines need half a minute for them."""
SAVE_TIMEOUT_S: Final = 1.0
"""How long an engine of :func:`single_model_server` may save its prompt caches, if a load asks for that."""
_MANY: Final = 10_000


@pytest.fixture(scope="package")
def start_package_server() -> Iterator[StartServer]:
    """Starts servers that end when a test process has finished this folder, because even an idle server costs processor time."""
    with ExitStack() as stack:
        yield server_starter(stack)


@pytest.fixture(scope="package")
def faulty_server(
    start_package_server: StartServer,
    no_downloads: Callable[[pytest.MonkeyPatch], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> LemonbusServer:
    """A server with two gateways whose engines may die as often as tests kill them, because the breaker has its own

    test. The context is large enough for a generation that ends only when it is stopped.
    """
    engine = program(tmp_path_factory.mktemp("engine"), "slow_generation")
    with pytest.MonkeyPatch.context() as patch:
        no_downloads(patch)
        server = start_package_server(
            *("tiny-loop", "tiny-slow", "tiny-chat"),
            breaker_deaths=_MANY,
            ctx_size=65_536,
            llama_server=engine,
            max_loaded_models=8,
            idle_ttl=5000,
        )
    (server.models / "calm.gguf").symlink_to(server.models / "tiny-loop.gguf")
    return server


@pytest.fixture
def loop_server(faulty_server: LemonbusServer) -> LemonbusServer:
    """:func:`faulty_server` with tiny-loop loaded and both gateways running, whatever the last test did."""
    wait_for(lambda: len(faulty_server.gateway_pids()) == 2, "both gateways serve")
    load_and_ask(faulty_server, {"model_name": LOOP})
    return faulty_server


@pytest.fixture
def calm_server(loop_server: LemonbusServer) -> LemonbusServer:
    """:func:`loop_server` with the model ``CALM`` also loaded."""
    load_and_ask(loop_server, {"model_name": CALM, "llamacpp_backend": "system"})
    return loop_server


def load_and_ask(server: LemonbusServer, load: dict[str, str]) -> None:
    """Load a model and send it a request: when the load is answered, the supervisor may not know yet that an engine or a worker was just killed."""
    loaded = server.client.post("/v1/load", load)
    assert loaded.status == 200, loaded
    assert server.client.chat(load["model_name"], max_tokens=1).status == 200


@pytest.fixture(scope="package")
def single_model_server(
    start_package_server: StartServer,
    no_downloads: Callable[[pytest.MonkeyPatch], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> LemonbusServer:
    """A server that may load one model."""
    engine = program(tmp_path_factory.mktemp("engine"), "pauses_mid_stream")
    with pytest.MonkeyPatch.context() as patch:
        no_downloads(patch)
        return start_package_server(
            *("tiny-loop", "tiny-chat", "tiny-tale"),
            max_loaded_models=1,
            breaker_deaths=_MANY,
            ctx_size=65_536,
            llama_server=engine,
            prompt_cache_save_timeout=SAVE_TIMEOUT_S,
        )


@pytest.fixture
def pausing_server(single_model_server: LemonbusServer) -> Iterator[LemonbusServer]:
    """:func:`single_model_server` whose engine of tiny-loop pauses in mid-stream until the test ends. If an answer has

    more than three tokens, the engine sends the rest when it has been stopped and continued.
    """
    server = single_model_server
    assert server.client.post("/v1/unload", {}).status == 200
    load_and_ask(server, {"model_name": LOOP, "llamacpp_backend": "system"})
    yield server
    server.client.post("/v1/unload", {"model_name": LOOP})


@pytest.fixture(scope="package")
def crashing_server(
    start_package_server: StartServer,
    no_downloads: Callable[[pytest.MonkeyPatch], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> LemonbusServer:
    """A server whose engines die of the word POISON (``crashes_on_prompt``); the engine of tiny-loop drops its first

    connection. A load makes the server forget which requests killed them.
    """
    names = {"tiny-loop": "drops_connection"}
    engine = program_by_model(tmp_path_factory.mktemp("engine"), names, "crashes_on_prompt")
    with pytest.MonkeyPatch.context() as patch:
        no_downloads(patch)
        return start_package_server(
            "tiny-chat", "tiny-loop", llamacpp_backend="system", llama_server=engine, slots=4, breaker_deaths=_MANY
        )


@contextmanager
def one_death_noted(server: LemonbusServer) -> Iterator[None]:
    """One request in the block kills the engine of tiny-chat. After the block, the supervisor knows which one, and

    another engine is ready.

    A client may have its answer before the supervisor has read the worker's message.
    """

    def noted() -> int:
        return sum(line["event"] == "engine died of a request" for line in server.lines)

    before = noted()
    yield
    wait_for(lambda: noted() == before + 1, "the supervisor knows which request killed the engine")
    server.wait_loaded("extra.tiny-chat")
