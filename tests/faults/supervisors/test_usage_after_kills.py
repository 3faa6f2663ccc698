"""The usage agrees with the sum of all answers, whichever processes are killed meanwhile.

An answer that its client got whole is counted once, with the tokens that it says. Of an answer that broke off, at most what
the engine could have done is counted. ``REQUESTS=2000`` sends that many requests; ``make soak`` does.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from tests.conftest import StartServer
from tests.faults.supervisors.recoveries import kill_supervisor
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.server import LemonbusServer
from tests.support.waiting import pause, wait_for

REQUESTS: Final = int(os.environ.get("REQUESTS", "160"))
OF_A_KEY: Final = 8
"""Requests of one key: the sums of a key are compared if all its clients got their answers."""
CLIENTS: Final = 6
BETWEEN_KILLS: Final = 32
BEFORE_A_KILL: Final = 10
"""Answers, of both models, after which the next kill comes in the middle of the others."""
MODELS: Final = ("extra.tiny-chat", "extra.tiny-tale")
ADMIN: Final = "administrator"
MOST_TOKENS: Final = 12
MOST_PROMPT: Final = 200
MOST_ATTEMPTS: Final = 3
FIRST_SECONDS: Final = 1.5
BEGAN: Final = datetime.now(UTC).date()


class Answer(NamedTuple):
    """What a client got: the usage of a whole answer, or None."""

    key: str
    usage: dict[str, int] | None


def key_of(number: int) -> str:
    return f"client-{number // OF_A_KEY}"


def ask(port: int, number: int) -> Answer:
    """Ask for an answer or a stream, in turn, of either model, and return its usage."""
    key = key_of(number)
    body: dict[str, Any] = {
        "model": MODELS[number % 3 == 0],
        "messages": [{"role": "user", "content": f"question {number}"}],
        "max_tokens": 1 + number % MOST_TOKENS,
        "ignore_eos": True,
    }
    if number % 2:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    client = RawHttpClient(port, {"Authorization": f"Bearer {key}"})
    try:
        answer = client.post("/v1/chat/completions", body, patience=60.0)
    except (AssertionError, OSError):  # the gateway was killed
        return Answer(key, None)
    if answer.status != 200 or not answer.complete:
        return Answer(key, None)
    if not number % 2:
        return Answer(key, answer.json()["usage"])
    usage = [event["usage"] for event in answer.chunks if event.get("usage")]
    return Answer(key, usage[0] if answer.done and usage else None)


def kill_one(pid: int) -> None:
    processes.kill(pid)
    wait_for(lambda: not processes.alive(pid), "it is dead")


def kills(server: LemonbusServer) -> Iterator[Callable[[], object]]:
    """Yield what to kill, in turn: a worker, a gateway, the supervisor, a worker with the supervisor, a gateway with it."""

    recovered_at = [time.monotonic()]

    def worker(model: str) -> int:
        server.wait_loaded(model)
        return server.worker_pid(model)

    def engine(model: str) -> int:
        server.wait_loaded(model)
        return server.engine_pid(model)

    def gateway() -> int:
        return wait_for(server.gateway_pids, "a gateway runs")[0]

    def kill_grown_supervisor(*others: int) -> None:
        """Kill a supervisor that has lived for a moment: after ten in a row that died at once, the server would end."""
        pause(max(0.0, recovered_at[-1] + FIRST_SECONDS - time.monotonic()))
        kill_supervisor(server, *others)
        recovered_at.append(time.monotonic())

    yield from itertools.cycle(
        [
            lambda: kill_one(worker(MODELS[0])),
            kill_grown_supervisor,
            lambda: kill_one(gateway()),
            lambda: kill_grown_supervisor(worker(MODELS[1])),
            lambda: kill_grown_supervisor(gateway()),
            lambda: kill_one(engine(MODELS[0])),
        ]
    )


def usage_of(server: LemonbusServer) -> dict[str, dict[str, int]]:
    """Return the sums of each key."""
    answer = server.client.get(f"/internal/usage?since={BEGAN}", **server.admin_headers)
    assert answer.status == 200, answer
    sums: dict[str, dict[str, int]] = {}
    for row in answer.json()["rows"]:
        of_key = sums.setdefault(row["key"], dict.fromkeys(("requests", "prompt_tokens", "output_tokens"), 0))
        for name in of_key:
            of_key[name] += row[name]
    return sums


def differences(server: LemonbusServer, answers: list[Answer]) -> list[str]:
    """Return the keys whose usage does not agree with their answers, and why."""
    used, wrong = usage_of(server), []
    for key in sorted({answer.key for answer in answers}):
        of_key = [answer.usage for answer in answers if answer.key == key]
        whole = [usage for usage in of_key if usage is not None]
        broken = len(of_key) - len(whole)
        have = used.get(key, {"requests": 0, "prompt_tokens": 0, "output_tokens": 0})
        bounds = {
            "requests": (len(whole), len(of_key)),
            "prompt_tokens": (
                least := sum(usage["prompt_tokens"] for usage in whole),
                least + broken * MOST_ATTEMPTS * MOST_PROMPT,
            ),
            "output_tokens": (
                least := sum(usage["completion_tokens"] for usage in whole),
                least + broken * MOST_ATTEMPTS * MOST_TOKENS,
            ),
        }
        wrong += [
            f"{key}: {name} {have[name]}, not {low} to {high}"
            for name, (low, high) in bounds.items()
            if not low <= have[name] <= high
        ]
    return wrong


def test_the_usage_agrees_with_the_answers_whatever_is_killed(start_server: StartServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    names = sorted({key_of(number) for number in range(REQUESTS)})
    keys = [ApiKey(name=name, sha256=digest(name), scopes=[Scope.INFERENCE]) for name in names]
    write_keys(state / KEYS_FILE, keys)
    start = partial(
        start_server,
        "tiny-chat",
        "tiny-tale",
        admin_api_key=ADMIN,
        gateway_workers=2,
        slots=4,
        max_loaded_models=2,
        state_dir=str(state),
    )
    server = start()
    answered = threading.Semaphore(0)
    answers: list[Answer] = []

    def send(number: int) -> None:
        answers.append(ask(server.port, number))
        answered.release()

    with ThreadPoolExecutor(CLIENTS) as pool:
        for first, kill in zip(range(0, REQUESTS, BETWEEN_KILLS), kills(server), strict=False):
            for number in range(first, min(REQUESTS, first + BETWEEN_KILLS)):
                pool.submit(send, number)
            for _ in range(min(BEFORE_A_KILL, REQUESTS - first)):
                assert answered.acquire(timeout=60.0), "a request was never answered"
            kill()
            for _ in range(min(BETWEEN_KILLS, REQUESTS - first) - BEFORE_A_KILL):
                assert answered.acquire(timeout=60.0), "a request was never answered"
    server.assert_idle()
    assert len(answers) == REQUESTS
    broken = {answer.key for answer in answers if answer.usage is None}
    assert len(names) - len(broken) >= len(names) // 3, "enough keys are compared exactly"
    try:
        wait_for(lambda: not differences(server, answers), "they agree")
    except AssertionError:
        assert differences(server, answers) == []
    server.stop()
    assert differences(start(), answers) == [], "after a restart, the disk has all of it"
