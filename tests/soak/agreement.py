"""Compares what a server over several machines says of itself with its processes, and with the answers that its clients got."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from protocol.models.nodes import HEAD
from tests.soak.history import History
from tests.support.node_agents import NodeUnderTest
from tests.support.processes import ProcessInfo
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

_ENDPOINTS: Final = {HEAD: "chat/completions"}
"""The endpoint that only clients of a place use whose gateways are never killed: their counts must be complete."""
BEGAN: Final = datetime.now(UTC).date()


class Agreement:
    """A server and its other nodes."""

    def __init__(self, server: LemonbusServer, nodes: Mapping[str, NodeUnderTest]) -> None:
        self._server, self._nodes = server, nodes

    def wait(self, seconds: float) -> None:
        """Wait until nothing differs: health and metrics are some moments old."""
        try:
            wait_for(lambda: not self.differences(), "health and metrics agree with the processes", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.differences()}") from None

    def differences(self) -> list[str]:
        """Return in what health and metrics differ from the processes at this moment."""
        with contextlib.suppress(OSError, KeyError, ValueError):
            return [*self._differences(), *self._orphans()]
        return ["no answer"]

    def _differences(self) -> Iterator[str]:
        state, metrics = self._server.state(), self._metrics()
        shown = {name: set[int]() for name in (HEAD, *self._nodes)}
        models: dict[str, set[str]] = {name: set() for name in shown}
        names = [model["model_name"] for model in state["models"]]
        if len(names) != len(set(names)):
            yield f"a model is shown twice: {names}"
        for model in state["models"]:
            for engine in model.get("replicas", [model]):
                shown[engine["node"]].add(engine["engine_pid"])
                models[engine["node"]].add(model["model_name"])
        for name, pids in shown.items():
            running = self._engines(name)
            if {each.pid for each in running} != pids:
                yield f"{name}: engines {sorted(pids)} are shown, and {running} run"
            if (counted := metrics.get(f"lemonbus_node_models {name}")) != len(models[name]):
                yield f"{name}: {counted} models are counted, not {len(models[name])}"
            workers = {each.pid for each in self._processes(name) if each.runs("workers")}
            known = {
                each["pid"]
                for each in state["processes"]
                if each["role"] == "worker" and (each.get("node") or HEAD) == name
            }
            if workers != known:
                yield f"{name}: workers {sorted(known)} are shown, and {sorted(workers)} run"
        states = {each["name"]: each["state"] for each in state["nodes"]}
        if set(states.values()) != {"ready"} or states.keys() != shown.keys():
            yield f"the nodes are {states}"
        if metrics["lemonbus_nodes ready"] != len(shown) or metrics["lemonbus_models_loaded"] != len(names):
            yield f"{metrics['lemonbus_nodes ready']} nodes and {metrics['lemonbus_models_loaded']} models are counted"

    def _orphans(self) -> Iterator[str]:
        """Yield what runs on other nodes and is not of their agents, such as an engine whose worker has ended."""
        for name, node in self._nodes.items():
            tree = node.process_tree()
            owners = {each.pid for each in tree}
            if orphans := [each for each in tree if each.pid != node.pid and each.parent not in owners]:
                yield f"{name}: nothing owns {orphans}"

    def _metrics(self) -> dict[str, float]:
        """Return the values of all series by their names and the values of their labels."""
        text = self._server.client.get("/metrics", **self._server.admin_headers).body.decode()
        return {
            " ".join([sample.name, *sample.labels.values()]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def _processes(self, node: str) -> list[ProcessInfo]:
        return (self._server if node == HEAD else self._nodes[node]).process_tree()

    def _engines(self, node: str) -> list[ProcessInfo]:
        found = self._processes(node)
        workers = {each.pid for each in found if each.runs("workers")}
        return [each for each in found if each.parent in workers]

    def counted_wrongly(self, history: History) -> Iterator[str]:
        """Yield the counts that do not agree with what clients got."""
        metrics = self._metrics()
        for place, endpoint in _ENDPOINTS.items():
            unread = history.chats[place] - sum(n for (of, _), n in history.statuses.items() if of == place)
            for series, counts in (
                ("lemonbus_http_requests_total", history.statuses),
                ("lemonbus_errors_total", history.errors),
            ):
                prefix = f"{series} {endpoint} openai "
                counted = {name.removeprefix(prefix): n for name, n in metrics.items() if name.startswith(prefix)}
                got = {code: n for (of, code), n in counts.items() if of == place and n}
                for code in sorted(counted.keys() | got.keys()):
                    least = got.get(code, 0)
                    if not least <= counted.get(code, 0) <= least + unread:
                        yield f"{place}: {counted.get(code, 0)} answers with {code} in {series}, not {least} to {least + unread}"
        for place, whole in history.whole.items():
            used = self._requests_used(place)
            if not whole <= used <= history.sent[place]:
                yield f"{place}: the usage has {used} requests, not {whole} to {history.sent[place]}"

    def _requests_used(self, key: str) -> int:
        answer: Any = self._server.client.get(f"/internal/usage?since={BEGAN}", **self._server.admin_headers).json()
        return sum(row["requests"] for row in answer["rows"] if row["key"] == key)
