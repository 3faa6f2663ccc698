"""Faults over several machines: agents, workers, engines and supervisors are killed and stopped, links are cut, nodes are drained."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from protocol.models.nodes import HEAD
from tests.soak import oracle
from tests.soak.agreement import Agreement
from tests.soak.history import FaultKind, History
from tests.soak.machine_faults import stop_for
from tests.support import processes
from tests.support.node_agents import NodeUnderTest, joined, node_states
from tests.support.processes import ProcessInfo
from tests.support.server import LemonbusServer
from tests.support.tcp_link import TcpLink
from tests.support.waiting import wait_for

PAUSES_S: Final = (0.3, 1.0, 3.0)
SHORT_S, LONG_S = 0.5, 6.0
"""A stop for less than a node's and a peer's silence, and one for longer than both."""
CUT_S, LONG_CUT_S = 3.0, 30.0
GONE_S: Final = 15.0
"""Within this time after the end of an agent, everything on its node has ended."""
AWAY_S: Final = (0.0, 1.0, 5.0)
"""How long a node is away whose agent has ended: also less than it takes to notice it."""
BUSY_SHARE: Final = 0.6
BUSY_S: Final = 8.0
"""How long engines are stopped on a node that breaks while it is busy: one that is back after it was lost still has its streams then."""
SERVES_S: Final = 10.0
"""How long such a node may take to have an engine that gives long answers: it may be back since a moment ago."""
BACK_S: Final = 60.0
"""Within this time after a fault, a node is in the server again."""
LEAVES_S: Final = 80.0
"""Within this time after a node was told to drain or to leave, it has no model: the longest streams must end, and engines may be stopped."""
AGREES_S: Final = 40.0
"""Within this time after a round, there is a moment at which health and metrics agree with the processes."""
DRAINED_S: Final = (2.0, 5.0)


class Machines(NamedTuple):
    """What can be broken besides the server itself."""

    nodes: Mapping[str, tuple[NodeUnderTest, TcpLink]]
    """Node → its agent, and its link to the supervisor."""
    link: TcpLink
    """The link of a gateway elsewhere."""
    place: str
    """Where that gateway is."""


class NodeFaults(threading.Thread):
    """Each round has every fault once, in a random order. What lasts runs beside the rest; a node has one such fault at a time.

    In the end all links are whole, all nodes are back, and no process is stopped.
    """

    def __init__(
        self,
        server: LemonbusServer,
        machines: Machines,
        agreement: Agreement,
        seed: int,
        end: threading.Event,
        history: History,
    ) -> None:
        """Make its choices from ``seed``. ``agreement`` is checked after each round, under the requests of all clients."""
        super().__init__(name="faults", daemon=True)
        self._server, self._machines, self._agreement = server, machines, agreement
        self._random = random.Random(seed)
        self._end, self._history = end, history
        self._running: dict[str, threading.Thread] = {}
        """Node or place → the fault that lasts there."""
        self._first_round = True

    def run(self) -> None:
        """Inject faults until the end."""
        while not self._end.is_set():
            faults = self._round()
            self._random.shuffle(faults)
            if self._first_round:
                faults.sort(key=self._rank)
            for fault in faults:
                if self._end.wait(self._random.choice(PAUSES_S)):
                    break
                fault()
            else:
                self._first_round = False
                self._wait_over()
                self._guarded("after a round", partial(self._agreement.wait, AGREES_S))
        self._wait_over()

    def _wait_over(self) -> None:
        """Wait for the faults that last."""
        for thread in self._running.values():
            thread.join()

    def _guarded(self, where: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            self._history.violate(f"{where}: {type(error).__name__}: {str(error)[:1000]}")

    def _rank(self, fault: partial[None]) -> int:
        """Sort what lasts long first, and then what loses a node with its streams, so that a short soak also has both."""
        return 0 if LONG_CUT_S in fault.args else 1 if fault.args == (self._hold, LONG_S) else 2

    def _round(self) -> list[partial[None]]:
        on_node, on_link = self._on_a_node, self._on_link
        return [
            partial(on_node, self._kill_agent, False),
            partial(on_node, self._kill_agent, True),
            partial(on_node, self._leave, 0.0),
            *(partial(on_node, self._stop_agent, seconds) for seconds in (SHORT_S, 2.0, LONG_S)),
            *(partial(on_node, self._cut, seconds) for seconds in (CUT_S, LONG_CUT_S)),
            *(partial(on_node, self._hold, seconds) for seconds in (SHORT_S, CUT_S, LONG_S)),
            partial(on_node, self._drain, 0.0),
            *(partial(on_link, hold, seconds) for hold in (False, True) for seconds in (CUT_S, LONG_S)),
            partial(on_link, False, LONG_CUT_S),
            *(partial(self._break_process, FaultKind.ENGINE, seconds) for seconds in (0.0, 0.0, LONG_S)),
            *(partial(self._break_process, FaultKind.WORKER, seconds) for seconds in (0.0, 0.0, SHORT_S, LONG_S)),
            *(partial(self._break_supervisor, seconds) for seconds in (0.0, 0.0, SHORT_S, 2.0)),
        ]

    # Faults that last

    def _on_a_node(self, fault: Callable[[NodeUnderTest, TcpLink, float], None], amount: float) -> None:
        free = [name for name in self._machines.nodes if not self._is_busy(name)]
        if not free:
            for thread in self._running.values():
                thread.join(SHORT_S)
            free = [name for name in self._machines.nodes if not self._is_busy(name)]
        if free:
            name = self._random.choice(free)
            work = partial(fault, *self._machines.nodes[name], amount)
            loses = fault != self._drain and not 0.0 < amount < CUT_S
            if loses and (self._first_round or self._random.random() < BUSY_SHARE):
                work = partial(self._break_busy, self._machines.nodes[name][0], work)
            self._begin(name, work)

    def _break_busy(self, node: NodeUnderTest, work: Callable[[], None]) -> None:
        """Stop the engines of a node for a while, so that it has streams that have begun and requests that have not; then break it."""
        with contextlib.suppress(AssertionError):
            wait_for(lambda: self._end.is_set() or _serves_streams(node), "an engine that gives long answers", SERVES_S)
        self._end.wait(SHORT_S)
        with self._history.fault(FaultKind.ENGINE, node.name, "stopped all engines of a node"):
            stops = [
                threading.Thread(target=stop_for, args=(engine.pid, BUSY_S, self._end), daemon=True)
                for engine in node.engines()
            ]
            for stop in stops:
                stop.start()
            self._end.wait(SHORT_S)
            work()
            for stop in stops:
                stop.join()

    def _on_link(self, hold: bool, seconds: float) -> None:
        if not self._is_busy(self._machines.place):
            self._begin(self._machines.place, partial(self._break_link, hold, seconds))

    def _is_busy(self, place: str) -> bool:
        return place in self._running and self._running[place].is_alive()

    def _begin(self, place: str, fault: Callable[[], None]) -> None:
        self._running[place] = threading.Thread(target=self._guarded, args=(place, fault), daemon=True)
        self._running[place].start()

    def _kill_agent(self, node: NodeUnderTest, _link: TcpLink, everything: float) -> None:
        what = "killed everything of a node" if everything else "killed an agent"
        with self._history.fault(FaultKind.NODE, node.name, what):
            pids = [each.pid for each in node.process_tree() if each.pid != node.pid] if everything else []
            for pid in (node.pid, *pids):
                with contextlib.suppress(ProcessLookupError):
                    processes.kill(pid)
            node.process.wait()
            self._come_back(node)

    def _leave(self, node: NodeUnderTest, _link: TcpLink, _amount: float) -> None:
        with self._history.fault(FaultKind.NODE, node.name, "told a node to leave"):
            node.process.send_signal(signal.SIGTERM)
            if (status := node.wait_end(LEAVES_S)) != 0:
                self._history.violate(f"an agent that was told to leave ended with {status}")
            self._come_back(node)

    def _come_back(self, node: NodeUnderTest) -> None:
        node.assert_nothing_left(GONE_S)
        self._end.wait(self._random.choice(AWAY_S))
        node.start_again()
        self._wait_joined(node)

    def _stop_agent(self, node: NodeUnderTest, _link: TcpLink, seconds: float) -> None:
        with self._history.fault(FaultKind.NODE, node.name, f"stopped an agent for {seconds:g} s"):
            stop_for(node.pid, seconds, self._end)
            self._wait_joined(node)

    def _cut(self, node: NodeUnderTest, link: TcpLink, seconds: float) -> None:
        with self._history.fault(FaultKind.NODE, node.name, f"cut the link of a node for {seconds:g} s"):
            link.cut()
            self._end.wait(seconds)
            link.heal()
            self._wait_joined(node)

    def _hold(self, node: NodeUnderTest, link: TcpLink, seconds: float) -> None:
        with self._history.fault(FaultKind.NODE, node.name, f"held the link of a node for {seconds:g} s"):
            link.hold()
            self._end.wait(seconds)
            link.heal()
            self._wait_joined(node)

    def _wait_joined(self, node: NodeUnderTest) -> None:
        """Wait until a node is in the server again. What it had may have been lost meanwhile, and must then have ended."""

        def back() -> bool:
            with contextlib.suppress(OSError, KeyError, ValueError):
                return joined(self._server, node.name)
            return False

        wait_for(back, f"{node.name} is back: {node.printed} {node.lines[-3:]}", BACK_S)

    def _drain(self, node: NodeUnderTest, _link: TcpLink, _amount: float) -> None:
        with self._history.fault(FaultKind.DRAIN, node.name, "drained a node"):
            self._order(node.name, "drain")
            try:
                wait_for(partial(self._has_left, node.name), f"all models leave {node.name}", LEAVES_S)
                self._end.wait(self._random.choice(DRAINED_S))
                if engines := node.engines():
                    self._history.violate(f"a model was loaded on a node that drains: {engines}")
            finally:
                self._order(node.name, "undrain")

    def _has_left(self, node: str) -> bool:
        """Return whether a node is without models that were told to leave it. Clients go on asking for them."""
        with contextlib.suppress(OSError, KeyError, ValueError):
            return node_states(self._server).get(node) == "drained"
        return False

    def _order(self, node: str, verb: str) -> None:
        def done() -> bool:
            path = f"/internal/nodes/{node}/{verb}"
            with contextlib.suppress(OSError):
                return self._server.client.post(path, {}, 30.0, **self._server.admin_headers).status == 200
            return False

        wait_for(done, f"{verb} of {node}", AGREES_S)

    def _break_link(self, hold: bool, seconds: float) -> None:
        link, place = self._machines.link, self._machines.place
        with self._history.fault(
            FaultKind.LINK, place, f"{'held' if hold else 'cut'} a gateway's link for {seconds:g} s"
        ):
            (link.hold if hold else link.cut)()
            self._end.wait(seconds)
            link.heal()

    # Processes

    def _break_process(self, kind: FaultKind, seconds: float) -> None:
        """Kill or stop a worker or an engine somewhere."""
        place = self._random.choice([HEAD, *self._machines.nodes])
        machine = self._server if place == HEAD else self._machines.nodes[place][0]
        tree = machine.process_tree()
        workers = {each.pid: each for each in tree if each.runs("workers")}
        engines = [each for each in tree if each.parent in workers]
        found = engines if kind is FaultKind.ENGINE else list(workers.values())
        if not found:
            return
        chosen = self._random.choice(sorted(found, key=lambda each: each.pid))
        model = _model_of(
            chosen if kind is FaultKind.ENGINE else next((e for e in engines if e.parent == chosen.pid), None)
        )
        self._break(kind, place, chosen.pid, seconds, model)

    def _break_supervisor(self, seconds: float) -> None:
        self._break(FaultKind.SUPERVISOR, HEAD, self._server.supervisor_pid, seconds)

    def _break(self, kind: FaultKind, place: str, pid: int, seconds: float, model: str = "") -> None:
        what = f"stopped for {seconds:g} s" if seconds else "killed"
        with self._history.fault(kind, place, f"{what}: {kind}", model), contextlib.suppress(ProcessLookupError):
            if seconds:
                stop_for(pid, seconds, self._end)
            else:
                processes.kill(pid)


def _serves_streams(node: NodeUnderTest) -> bool:
    return any(_model_of(engine) == oracle.ENDLESS for engine in node.engines())


def _model_of(engine: ProcessInfo | None) -> str:
    """Return the model of an engine's command line; empty if it has none."""
    files = [word.rpartition("/")[2] for word in engine.words if word.endswith(".gguf")] if engine else []
    return f"extra.{files[0].removesuffix('.gguf')}" if files else ""
