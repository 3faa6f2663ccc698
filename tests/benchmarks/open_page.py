"""What a page that follows the overview costs the server: processor time of supervisor and gateways, in percent of one processor."""

from __future__ import annotations

import contextlib
import selectors
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.benchmarks.measuring import median, processor_seconds, until
from tests.fake_engines.llama_server import program
from tests.support.clients.http_exchange import HttpExchange
from tests.support.models.tiny_models import tiny_models
from tests.support.server import LemonbusServer

PAGES: Final = (0, 1, 10)
SECONDS: Final = 3.0
LOADED: Final = 10
KNOWN: Final = 500
RUNNING: Final = 32
WAITING: Final = 300
_MODEL: Final = "extra.tiny-loop"


class OpenPageCost(msgspec.Struct):
    """Percent of one processor, medians of the rounds: of the server without a page, and what one and ten pages add."""

    case: str
    without: float
    one: float
    ten: float

    def row(self) -> tuple[str, ...]:
        """Return the line of the table."""
        return self.case, *(f"{figure:.2f} %" for figure in (self.without, self.one, self.ten))


def measure(rounds: int) -> list[OpenPageCost]:
    """Measure servers that are as large and as busy as a page can show."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            _measured("nothing loaded", rounds),
            _measured(f"{LOADED} models loaded", rounds, loaded=LOADED),
            _measured(f"{KNOWN} models known, {LOADED} loaded", rounds, loaded=LOADED, known=KNOWN),
            _measured(
                f"{RUNNING} requests running, {WAITING} waiting",
                rounds,
                engine=program(Path(folder), "pauses_mid_stream"),
            ),
        ]


def _measured(case: str, rounds: int, loaded: int = 0, known: int = 0, engine: str = "") -> OpenPageCost:
    own = (
        {"llamacpp_backend": "system", "llama_server": engine, "slots": RUNNING, "queue_requests": RUNNING + WAITING}
        if engine
        else {"ctx_size": 1024}
    )
    with LemonbusServer(
        "tiny-loop", max_loaded_models=LOADED + 1, log_level="info", gateway_workers=0, **own
    ) as server:
        names = [f"model-{number}" for number in range(max(known, loaded))]
        for name in names:
            (server.models / f"{name}.gguf").symlink_to(tiny_models() / "models" / "tiny-chat.gguf")
        for name in names[:loaded]:
            assert server.client.post("/v1/load", {"model": f"extra.{name}"}).status == 200
        with _requests(server) if engine else contextlib.nullcontext():
            pids = [server.supervisor_pid, *server.gateway_pids()]
            seen: dict[int, list[float]] = {pages: [] for pages in PAGES}
            for turn in range(rounds):
                for pages in PAGES[turn % 3 :] + PAGES[: turn % 3]:
                    seen[pages].append(_percent(server, pids, pages))
        without, one, ten = (median(seen[pages]) for pages in PAGES)
        return OpenPageCost(case, without, one - without, ten - without)


@contextlib.contextmanager
def _requests(server: LemonbusServer) -> Iterator[None]:
    """Have as many requests as a page can show, and fifty that have ended; they use no processor time."""
    for _ in range(50):
        assert server.client.chat("extra.no-such-model").status == 404
    held = [server.client.start_chat(_MODEL, stream=True) for _ in range(RUNNING + WAITING)]
    until(lambda: server.state()["granted"] == RUNNING and server.state()["queued"] == WAITING, 60.0)
    try:
        yield
    finally:
        for request in held:
            request.hang_up()


def _percent(server: LemonbusServer, pids: list[int], pages: int) -> float:
    """Return what the processes use while this many pages are open, and read everything at once."""
    open_pages = [server.client.start("GET", "/internal/overview/stream") for _ in range(pages)]
    with selectors.DefaultSelector() as selector:
        for page in open_pages:
            page.until(lambda it: it.events)
            selector.register(page.connection, selectors.EVENT_READ, page)
        _read(selector, SECONDS / 4)
        before, begun = processor_seconds(pids), time.perf_counter()
        _read(selector, SECONDS)
        used = (processor_seconds(pids) - before) / (time.perf_counter() - begun)
    for page in open_pages:
        page.hang_up()
    return 100 * used


def _read(selector: selectors.BaseSelector, seconds: float) -> None:
    end = time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        if not selector.get_map():
            time.sleep(left)
        for key, _ in selector.select(left):
            page: HttpExchange = key.data
            page.read()
