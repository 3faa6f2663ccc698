"""SIGKILL of the supervisor at random moments under load: no client notices, and no model is loaded again."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from tests.conftest import StartServer
from tests.support import processes
from tests.support.server import LemonbusServer
from tests.support.waiting import pause, wait_for

LOOP: Final = "extra.tiny-loop"
CHAT: Final = "extra.tiny-chat"
TALE: Final = "extra.tiny-tale"
KILLS: Final = 8
LONGEST_PAUSE_S: Final = 2.0
"""Some die before they have taken over; if ten in a row died in their first second, the server would end."""
PATIENCE: Final = 60.0


class Clients:
    """Clients that ask again and again until they are stopped; what they got is counted."""

    def __init__(self, server: LemonbusServer) -> None:
        self._server = server
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []

    def start(self, model: str, count: int, **fields: Any) -> None:
        """Let ``count`` clients ask a model; every other one for a stream."""
        for number in range(count):
            one = threading.Thread(target=self._ask, args=(model, number % 2 == 0, fields), daemon=True)
            one.start()
            self._threads.append(one)

    def _ask(self, model: str, stream: bool, fields: dict[str, Any]) -> None:
        while not self._stopped.is_set():
            try:
                answer = self._server.client.start_chat(model, stream=stream, **fields).finish(PATIENCE)
            except (AssertionError, OSError) as problem:
                self.failures.append(f"{model}: {problem!r}")
                continue
            if answer.status == 200 and answer.complete and (answer.done or not stream):
                self.answers[model] += 1
            else:
                self.failures.append(f"{model}: {answer!r}")

    def stop(self) -> None:
        """Wait for the last answers."""
        self._stopped.set()
        for one in self._threads:
            one.join(PATIENCE)
            assert not one.is_alive(), "a request was never answered"


@contextmanager
def asking(server: LemonbusServer) -> Iterator[Clients]:
    made = Clients(server)
    try:
        yield made
    finally:
        made.stop()


def recoveries(server: LemonbusServer) -> list[dict[str, Any]]:
    """What each supervisor that took over said of it."""
    return [line for line in server.lines if line["event"] == "recovered"]


def kill_at_random_moments(server: LemonbusServer, seed: int) -> None:
    """Kill one supervisor after the other, and wait until the last one has taken over."""
    choose = random.Random(seed)
    for _ in range(KILLS):
        supervisor = server.supervisor_pid
        pause(choose.uniform(0.0, LONGEST_PAUSE_S))
        processes.kill(supervisor)
        wait_for(partial(is_dead, supervisor), "it is dead")
    last = server.supervisor_pid
    wait_for(lambda: any(line["pid"] == last for line in recoveries(server)), "the last one takes over", 30)


def is_dead(pid: int) -> bool:
    return not processes.alive(pid)


def test_no_client_notices_and_no_model_is_loaded_again(start_server: StartServer) -> None:
    server = start_server("tiny-loop", "tiny-chat", slots=32, load=[LOOP, CHAT], max_loaded_models=2, gateway_workers=2)
    server.wait_loaded(LOOP, CHAT)
    engines = {model: server.engine_pid(model) for model in (LOOP, CHAT)}
    with asking(server) as clients:
        clients.start(LOOP, 40, max_tokens=200)
        clients.start(CHAT, 4, max_tokens=3)
        kill_at_random_moments(server, 1)
    assert clients.failures == []
    assert all(clients.answers[model] > KILLS for model in (LOOP, CHAT)), clients.answers
    assert all(line["killed"] == [] for line in recoveries(server))
    assert {model: server.engine_pid(model) for model in (LOOP, CHAT)} == engines
    server.assert_idle()


def test_no_client_notices_while_models_are_swapped(start_server: StartServer) -> None:
    server = start_server(
        "tiny-loop", "tiny-chat", "tiny-tale", slots=8, load=[LOOP, CHAT], max_loaded_models=2, gateway_workers=2
    )
    server.wait_loaded(LOOP, CHAT)
    with asking(server) as clients:
        clients.start(LOOP, 8, max_tokens=200)
        clients.start(CHAT, 2, max_tokens=3)
        clients.start(TALE, 2, max_tokens=3)
        kill_at_random_moments(server, 2)
    assert clients.failures == []
    assert all(line["killed"] == [] for line in recoveries(server))
    assert not [line for line in server.lines if line["event"] == "worker killed"]
    server.assert_idle()
