"""How a real gateway process ends: draining, a dead supervisor, a dead worker process, a dead master."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import psutil
import pytest

from protocol import staff
from tests.gateway.process.talk import CHAT, PATH, error_of, opened
from tests.gateway.rawhttp import parsed, read_to_end, read_until, request
from tests.gateway.standin import StandIn, standing, wait_for
from tests.gateway.standworker import CHUNK, DEADLINE


def test_draining_refuses_the_new_and_lets_the_old_end(tmp_path: Path) -> None:
    with standing(tmp_path / "r") as house, house.connect() as kept, opened(house) as connection:
        kept.sendall(request("GET", "/live", b"", Connection="keep-alive"))
        read_until(kept, b'{"status":"ok"}')
        asked = house.next_ask()
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        seen = read_until(connection, CHUNK % 0)
        house.do(lambda: house.send(asked.gateway, staff.Draining(DEADLINE)))
        wait_for(lambda: house.get("/health")[0] == 503)
        kept.sendall(request("POST", PATH, CHAT, Connection="keep-alive"))
        response = parsed(read_to_end(kept))
        assert (response[0], response[1]["connection"], error_of(response)["code"]) == (503, "close", "draining")
        assert house.get("/live")[0] == 200
        house.do(lambda: house.publish(asked, [*asked.tokens(1, 2), asked.done(2)]))
        assert parsed(seen + read_to_end(connection))[2].endswith(b"data: [DONE]\n\n")
        assert house.gateway is not None
        house.gateway.send_signal(signal.SIGTERM)
        assert house.gateway.wait(DEADLINE) == 0


def test_the_supervisors_death_closes_the_door_and_lets_streams_end(tmp_path: Path) -> None:
    with standing(tmp_path / "r") as house, opened(house, CHAT) as waiting, opened(house) as running:
        asks = [house.next_ask(), house.next_ask()]
        asked = next(asked for asked in asks if asked.ask.stream)
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        seen = read_until(running, CHUNK % 0)
        house.listener.close()
        house.supervisor.kill()
        house.supervisor.wait(DEADLINE)
        response = parsed(read_to_end(waiting))
        assert (response[0], error_of(response)["code"]) == (503, "supervisor_lost")
        assert response[1]["retry-after"]
        wait_for(lambda: refused(house.port))
        house.do(lambda: house.publish(asked, [*asked.tokens(1, 2), asked.done(2)]))
        assert parsed(seen + read_to_end(running))[2].endswith(b"data: [DONE]\n\n")
        assert house.gateway is not None
        assert house.gateway.wait(DEADLINE) == 0


def test_after_the_grace_streams_are_told(tmp_path: Path) -> None:
    with standing(tmp_path / "r", grace=0.5) as house, opened(house) as running:
        asked = house.next_ask()
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        seen = read_until(running, CHUNK % 0)
        house.supervisor.kill()
        house.supervisor.wait(DEADLINE)
        body = parsed(seen + read_to_end(running))[2]
        assert b"supervisor_lost" in body
        assert b"[DONE]" not in body
        assert house.gateway is not None
        assert house.gateway.wait(DEADLINE) == 0


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE).close()
    except ConnectionRefusedError:
        return True
    return False


def workers_of(house: StandIn) -> list[psutil.Process]:
    assert house.gateway is not None
    return psutil.Process(house.gateway.pid).children()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_process_that_dies_or_stops_is_replaced(tmp_path: Path, how: signal.Signals) -> None:
    with standing(tmp_path / "r") as house:
        (worker,) = workers_of(house)
        os.kill(worker.pid, how)
        deadline = time.monotonic() + 12
        while len(house.gateways) < 2:
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        wait_for(lambda: house.get("/live")[0] == 200)


def test_the_masters_death_breaks_streams_and_never_completes_them(tmp_path: Path) -> None:
    with standing(tmp_path / "r") as house, opened(house) as connection:
        asked = house.next_ask()
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        read_until(connection, CHUNK % 0)
        (worker,) = workers_of(house)
        assert house.gateway is not None
        house.gateway.kill()
        rest = read_to_end(connection)
        assert b"[DONE]" not in rest
        assert not rest.endswith(b"0\r\n\r\n")
        worker.wait(DEADLINE)
