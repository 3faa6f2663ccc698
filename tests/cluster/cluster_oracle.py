"""Judges what a server over several nodes has said and left behind after a fault: its answers, processes, health and metrics."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, Self

from protocol.models.nodes import HEAD
from tests.cluster.cluster_server import ClusterServer
from tests.support.clients.http_exchange import HttpExchange
from tests.support.models import scripted_texts
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.network.nodes import NetworkNode
from tests.support.network.ray_cluster import agents
from tests.support.processes import ProcessInfo
from tests.support.waiting import wait_for

ANSWER_S: Final = 120.0
"""Within this time, every request must have its answer, whatever has died."""
WORDS: Final = len(scripted_texts.CHAT_WORDS)
"""Tokens of the text that the models repeat."""
_SETTLE_S: Final = 60.0
_SERIES: Final = re.compile(r'^lemonbus_engine_memory_bytes{model="([^"]+)",node="([^"]+)"[^}]*}', re.MULTILINE)


class JudgedRequest(NamedTuple):
    """One request of a model that repeats its text, which is being read."""

    exchange: HttpExchange
    model: str
    tokens: int
    reading: Future[HttpExchange]

    @property
    def has_begun(self) -> bool:
        """Whether some tokens have arrived."""
        return len(self.exchange.messages) > 2

    @property
    def ended_at(self) -> float:
        """When the last event of a stream arrived, in monotonic seconds."""
        return self.exchange.messages[-1].at

    def answer(self) -> HttpExchange:
        """Return its answer, waited for."""
        return self.reading.result(ANSWER_S)

    def check_whole(self) -> None:
        """Check that its answer is whole."""
        answer = self.answer()
        assert answer.status == 200, (self, answer)
        assert not answer.error, (self, answer)
        assert answer.text == CHAT_TEXT * (self.tokens // WORDS), (self, answer)
        assert answer.done or not answer.events, (self, answer)

    def check_lost(self, node: str) -> float:
        """Check that its stream was broken and that it was told the truth: that this node was lost. Return when."""
        answer = self.answer()
        assert not answer.done, answer
        assert (CHAT_TEXT * (self.tokens // WORDS)).startswith(answer.text), answer
        assert answer.error["code"] == "node_lost", answer
        assert node in answer.error["message"], answer
        assert self.model in answer.error["message"], answer
        assert answer.error["request_id"], answer
        return self.ended_at

    def check_honest(self, node: str) -> None:
        """Check that its answer is whole, or says that a node was lost or could not be reached."""
        answer = self.answer()
        if answer.status == 200 and not answer.error:
            self.check_whole()
            return
        assert not answer.done, answer
        if answer.events:
            assert (CHAT_TEXT * (self.tokens // WORDS)).startswith(answer.text), answer
        assert answer.error["code"] in ("node_lost", "events_lost", "no_suitable_node"), answer
        assert node in answer.error["message"], answer


class ConcurrentRequests:
    """Requests whose answers are read at the same time. Use it as a context manager."""

    def __init__(self, server: ClusterServer, most: int = 32) -> None:
        """``most``: how many there may be at once."""
        self._server, self._pool = server, ThreadPoolExecutor(most)
        self.all: list[JudgedRequest] = []

    def start(self, model: str, tokens: int, count: int = 1, *, stream: bool = True) -> list[JudgedRequest]:
        """Send some requests, in this order."""
        started = []
        for _ in range(count):
            exchange = self._server.client.start_chat(model, stream=stream, max_tokens=tokens)
            started.append(JudgedRequest(exchange, model, tokens, self._pool.submit(exchange.finish, ANSWER_S)))
        self.all += started
        return started

    def begin(self, model: str, tokens: int, count: int = 1) -> list[JudgedRequest]:
        """Start some streams, and wait until all have begun."""
        started = self.start(model, tokens, count)
        wait_for(lambda: all(each.has_begun for each in started), f"streams of {model} have begun", 60.0)
        return started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


def assert_consistent(server: ClusterServer) -> None:
    """Check that the server has come to rest, and that what runs on each node is what it says, each model once."""
    found: list[str] = ["it has not been looked at"]

    def is_consistent() -> bool:
        found[:] = inconsistencies(server)
        return not found

    try:
        wait_for(is_consistent, "what runs is what the server says", _SETTLE_S)
    except AssertionError as late:
        raise AssertionError(f"{late}: {found}\n{server.last_lines(40)}") from late


def inconsistencies(server: ClusterServer) -> list[str]:
    """Return what is wrong now with the processes of all nodes, with health and with the metrics."""
    wrong = []
    state = server.state()
    if state["granted"] or state["queued"]:
        wrong.append(f"{state['granted']} requests are granted and {state['queued']} wait, but all are answered")
    shown = Counter((each["model_name"], each["node"]) for each in state["models"])
    engines = Counter((_model_of(each), HEAD) for each in server.process_tree() if _model_of(each))
    for node in server.cluster.others:
        there = node.network_node
        wrong += _orphans(there)
        name = server.name_of(there)
        engines += Counter((_model_of(each), name) for each in there.processes() if _model_of(each))
    if shown != engines:
        wrong.append(f"health has {dict(shown)}, and engines of {dict(engines)} run")
    if twice := [model for model, count in Counter(model for model, _ in shown).items() if count > 1]:
        wrong.append(f"counted twice: {twice}")
    measured = Counter(_SERIES.findall(server.client.get("/metrics").body.decode()))
    if measured != shown:
        wrong.append(f"metrics have {dict(measured)}, and health {dict(shown)}")
    return wrong


def _model_of(process: ProcessInfo) -> str:
    """Return the model of an engine; empty if a process is none."""
    return process.option("-a") if process.mentions("llama_server") else ""


def _orphans(node: NetworkNode) -> list[str]:
    """Return which workers, jobs and engines on another node are not those of its one agent."""
    found = node.processes()
    owned = {each.pid for each in agents(node)}
    wrong = [f"node {node.number} has {len(owned)} agents"] if len(owned) > 1 else []
    ours = [each for each in found if any(word.startswith("workers.") or word == "workers" for word in each.words)]
    for _ in range(3):  # workers, engines, and what they start
        owned |= {each.pid for each in ours if each.parent in owned}
    return wrong + [f"nothing owns {each}" for each in ours if each.pid not in owned]
