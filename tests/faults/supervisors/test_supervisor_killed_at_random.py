"""SIGKILL of the supervisor at random moments under a mixed load: no client notices, and no counter falls.

``make soak`` kills it, and every other process, for minutes; with ``KILLS=30``, this test kills it that often.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import StartServer
from tests.fake_engines.generation.slow_generation import text_of
from tests.fake_engines.llama_server import program_by_model
from tests.faults.repeating_clients import asking
from tests.faults.supervisors.recoveries import counters, fallen, recoveries
from tests.support import processes
from tests.support.fakes.hub import Hub, gguf
from tests.support.models.tiny_models import CHAT_TEXT, TALE_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import pause, wait_for

LOOP: Final = "extra.tiny-loop"
CHAT: Final = "extra.tiny-chat"
TALE: Final = "extra.tiny-tale"
KILLS: Final = int(os.environ.get("KILLS", "3"))
LONGEST_PAUSE_S: Final = 1.5
"""Some supervisors die before they have taken over. If ten in a row died in their first second, the server would end."""


def kill_at_random_moments(server: LemonbusServer, seed: int) -> None:
    """Kill one supervisor after the other, and wait until the last one has taken over. No counter falls meanwhile."""
    choose = random.Random(seed)
    counted: dict[str, float] = {}
    for _ in range(KILLS):
        former, counted = counted, counters(server)
        assert fallen(former, counted) == {}
        supervisor = server.supervisor_pid
        pause(choose.uniform(0.0, LONGEST_PAUSE_S))
        processes.kill(supervisor)
        wait_for(partial(is_dead, supervisor), "it is dead")
    wait_for(
        lambda: server.supervisor_pid in {line["pid"] for line in recoveries(server)}, "the last one takes over", 30
    )
    assert fallen(counted, counters(server)) == {}


def is_dead(pid: int) -> bool:
    return not processes.alive(pid)


def test_no_client_notices_while_everything_happens_at_once(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32 streams and whole answers of a pinned model and 8 requests that wait for it, two models that take turns, downloads.

    The engine of the pinned model sends a word every tenth of a second, and leaves the processors to the tested processes.
    """
    (tmp_path / "state").mkdir()
    registered = {"Tiny": {"checkpoint": "shop/tiny-GGUF:Q4_0", "recipe": "llamacpp"}}
    (tmp_path / "state" / "user_models.json").write_text(json.dumps(registered))
    engine = program_by_model(tmp_path, {"tiny-loop": "slow_generation"})
    with Hub({"shop/tiny-GGUF": {"tiny-Q4_0.gguf": gguf(3_000_000)}}) as hub:
        hub.rate = 1_000_000
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        server = start_server(
            *("tiny-loop", "tiny-chat", "tiny-tale"),
            slots=32,
            pin=[LOOP],
            max_loaded_models=2,
            gateway_workers=2,
            llama_server=engine,
            state_dir=str(tmp_path / "state"),
            cache_dir=str(tmp_path / "cache"),
            offline=False,
        )
        assert server.client.post("/v1/load", {"model_name": LOOP, "llamacpp_backend": "system"}).status == 200
        pinned = server.engine_pid(LOOP)

        def pull() -> None:
            answer = server.client.post("/v1/pull", {"model_name": "user.Tiny"}, patience=60.0)
            assert answer.status == 200, answer
            shutil.rmtree(tmp_path / "hf", ignore_errors=True)

        with asking(server) as clients:
            clients.start(LOOP, 40, text_of(12), max_tokens=12)
            clients.start(CHAT, 2, CHAT_TEXT)
            clients.start(TALE, 2, TALE_TEXT)
            clients.repeat("pull", pull)
            kill_at_random_moments(server, 3)
    assert clients.failures == []
    assert min(clients.answers[name] for name in (LOOP, CHAT, TALE, "pull")) > 0, clients.answers
    assert server.engine_pid(LOOP) == pinned
    assert all(line["killed"] == [] for line in recoveries(server))
    assert not [line for line in server.lines if line["event"] == "worker killed"]
    server.assert_idle()
