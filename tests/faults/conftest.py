"""The servers that tests of faults share: each test leaves them with whatever it has killed replaced."""

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
"""The engine ``slow_generation`` says a word every tenth of a second: its streams last, and leave the processors alone."""
SAVE_TIMEOUT_S: Final = 1.0
"""How long :func:`single_model_server` lets an engine save its prompt caches, where a load asks for that."""
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
    """A server with two gateways whose engines may die as often as tests kill them: the breaker has its own test.

    The context is large enough for a generation that only ends if it is stopped.
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
    """:func:`faulty_server` with tiny-loop loaded and both gateways, however the last test left it."""
    wait_for(lambda: len(faulty_server.gateway_pids()) == 2, "both gateways serve")
    load_and_ask(faulty_server, {"model_name": LOOP})
    return faulty_server


@pytest.fixture
def calm_server(loop_server: LemonbusServer) -> LemonbusServer:
    """:func:`loop_server` with the model ``CALM`` also loaded."""
    load_and_ask(loop_server, {"model_name": CALM, "llamacpp_backend": "system"})
    return loop_server


def load_and_ask(server: LemonbusServer, load: dict[str, str]) -> None:
    """Load a model and ask it: when the load is answered, it may be unknown that an engine or a worker was just killed."""
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
            llama_server=engine,
            prompt_cache_save_timeout=SAVE_TIMEOUT_S,
        )


@pytest.fixture
def pausing_server(single_model_server: LemonbusServer) -> Iterator[LemonbusServer]:
    """:func:`single_model_server` with an engine of tiny-loop, until the test ends, that pauses in mid-stream.

    If an answer has more than three tokens, it sends the rest once it has been stopped and continued.
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
    """A server whose engines die of the word POISON (``crashes_on_prompt``); that of tiny-loop drops its first connection.

    A load makes the server forget what they died of.
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
    """One request in the block kills the engine of tiny-chat.

    Afterwards the supervisor knows which one, and another engine is ready.

    A client may have its answer before the supervisor has read the worker's message.
    """

    def noted() -> int:
        return sum(line["event"] == "engine died of a request" for line in server.lines)

    before = noted()
    yield
    wait_for(lambda: noted() == before + 1, "the supervisor knows of which request the engine died")
    server.wait_loaded("extra.tiny-chat")
