"""The sockets of a worker or a job: control (DEALER), events (XPUB), logs (PUSH).

The only file of `workers` that knows ZeroMQ.

Invariants:

* No call blocks.
* Control messages leave in the order in which they were sent: ends that wait to be sent together leave before any other
  message.
* Between two supervisors there is no connection, and messages are dropped: the next `Hello` has everything they said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
import zmq

from protocol.messages.peers import Ping, Pong
from protocol.messages.work import AttemptEnded, AttemptsEnded, RunningAnswer
from protocol.runtime import logs
from protocol.runtime.log_output import DropCounter
from protocol.runtime.loop import Loop, Timer
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints, envelope, frames
from protocol.wire.bus_address import BusAddress, KeyPair, port_range
from protocol.wire.bus_connection import SupervisorDealer, connect_logs

if TYPE_CHECKING:
    from protocol.wire import curve

EVENTS_HIGH_WATER: Final = 10_000
MAX_SUBSCRIPTION_BYTES: Final = 4096
"""More than anything that a gateway, or the handshake of CURVE, sends to this socket."""
LOGS_HIGH_WATER: Final = 10_000
LINGER_MS: Final = 500
"""How long the last messages of an ending worker may take."""

OnMessage = Callable[[object, bytes], None]
OnSubscription = Callable[[bool, bytes], None]


class WorkerBus:
    """Sends and receives; decides nothing."""

    def __init__(
        self, loop: Loop, context: ProcessContext, name: str, *, for_gateways: bool = True, ports: str = ""
    ) -> None:
        """Open the sockets, but no connection to a supervisor.

        ``for_gateways``: bind the one for events (a job has none). ``ports``: those for gateways on other nodes, as in the setting
        ``worker_ports``. Raises OSError if each of them is in use.
        """
        self._loop = loop
        self._name = name.encode()
        self._context = zmq.Context()
        self._address = context.bus
        self._ends: list[tuple[AttemptEnded, float]] = []
        """Ends that wait to be sent together, and when each came."""
        self._ends_timer: Timer | None = None
        """Sends them."""
        self._ends_wanted_at = 0.0
        """From this time on, they leave with whatever wakes this process."""
        self._errors_reported = 0
        self.on_message: OnMessage = lambda _message, _payload: None
        self.on_subscription: OnSubscription = lambda _joined, _topic: None
        self.log: Final = DropCounter(self._log)
        """Sends log records, and counts those that were dropped."""
        self.tokens_so_far: Callable[[], tuple[int, list[RunningAnswer]]] = lambda: (0, [])
        """What the answer to a `Ping` says of a worker's tokens."""
        self.on_connection_ended: Callable[[], None] = lambda: None
        """Called when the connection to a supervisor on another node has ended."""
        self.pings = 0
        """How many `Ping`s have come so far."""
        self._supervisor = SupervisorDealer(
            self._context, self._address, self._name, loop.watch, self._read_control, self._connection_ended
        )
        self._control_number = -1
        self._events = self._open(zmq.XPUB)
        self._events.setsockopt(zmq.XPUB_NODROP, 1)
        self._events.setsockopt(zmq.SNDHWM, EVENTS_HIGH_WATER)
        # Without a limit, ZeroMQ keeps whatever a peer sends as one message, even before it knows whether it has a key.
        self._events.setsockopt(zmq.MAXMSGSIZE, MAX_SUBSCRIPTION_BYTES)
        self.endpoint = endpoints.events(context.runtime, context.boot, name) if for_gateways else ""
        """Where events are published."""
        self.remote_endpoint = ""
        """Where they are also published for gateways on other nodes, if there is a cluster."""
        self._peer_check: curve.PeerCheck | None = None
        if self.endpoint:
            self._events.bind(self.endpoint)
            if self._address.cluster is not None:
                self._listen_on_tcp(self._address, self._address.cluster.keys.member, ports)
        self._logs = self._open(zmq.PUSH)
        self._logs.setsockopt(zmq.SNDHWM, LOGS_HIGH_WATER)
        self._logs.setsockopt(zmq.LINGER, 200)
        connect_logs(self._logs, self._address, context.boot)
        self._events_number = loop.on_socket(self._events, self._read_subscriptions)

    def _open(self, kind: int) -> zmq.Socket[bytes]:
        opened: zmq.Socket[bytes] = self._context.socket(kind)
        opened.setsockopt(zmq.LINGER, 0)
        return opened

    def _listen_on_tcp(self, address: BusAddress, keys: KeyPair, ports: str) -> None:
        from protocol.wire import curve  # noqa: PLC0415 - only servers with a cluster need it

        self._peer_check = curve.PeerCheck(self._context, keys)
        self._loop.on_socket(self._peer_check.socket, self._peer_check.answer)
        try:
            curve.listen_within(self._events, address.listening_host(), port_range(ports), keys)
        except OSError:
            self._loop.on_socket(self._peer_check.socket, None)
            self._context.destroy(linger=0)
            raise
        self.remote_endpoint = self._events.getsockopt_string(zmq.LAST_ENDPOINT)

    def _connection_ended(self) -> None:
        self.on_connection_ended()

    @property
    def is_remote(self) -> bool:
        """Whether the supervisor is on another node, so that only the connection to it can be watched."""
        return self._supervisor.is_remote

    def connect(self) -> None:
        """Connect to the supervisor that was found. `Hello` must be the first message to it."""
        self._control_number = int(self._supervisor.open().FD)

    def disconnect(self) -> None:
        """Drop everything that was not sent or not read."""
        self._take_ends()
        self._supervisor.drop()

    def is_broken(self) -> bool:
        """Return whether the connection has ended."""
        self._loop.used(self._control_number)
        return self._supervisor.is_broken()

    def find_supervisor(self) -> int:
        """Return the pid of the supervisor that accepts connections now, 0 if there is none; see :meth:`SupervisorDealer.find`."""
        return self._supervisor.find()

    def send(self, message: msgspec.Struct, payload: bytes = b"") -> None:
        """Send a control message to the supervisor, if there is one."""
        if self._ends:
            self._send_ends()
        if self._supervisor.dealer is not None:
            self._loop.used(self._control_number)
            self._supervisor.send(envelope.encode(message, payload))

    def send_soon(self, end: AttemptEnded, seconds: float) -> None:
        """Send an end within ``seconds``, with others. Only for an end that no request waits for."""
        now = self._loop.now()
        self._ends.append((end, now))
        due = now + seconds
        if self._ends_timer is None or due < self._ends_timer.when:
            if self._ends_timer is not None:
                self._ends_timer.cancel()
            self._ends_timer = self._loop.call_later(seconds, self._send_ends)
            self._ends_wanted_at = now + seconds / 2

    def send_ends_if_due(self) -> None:
        """Send the ends that have waited for half of their time: this process is awake now, and need not wake for them later."""
        if self._ends and self._loop.now() >= self._ends_wanted_at:
            self._send_ends()

    def _send_ends(self) -> None:
        ends = self._take_ends()
        if ends:
            self.send(ends[0] if len(ends) == 1 else AttemptsEnded(ends))

    def _take_ends(self) -> list[AttemptEnded]:
        now = self._loop.now()
        ends = [msgspec.structs.replace(end, age=now - came) for end, came in self._ends]
        self._ends = []
        if self._ends_timer is not None:
            self._ends_timer.cancel()
            self._ends_timer = None
        return ends

    def publish(self, topic: bytes, batch: bytes) -> bool:
        """Send the events of one loop iteration to a gateway; return False if its queue is full."""
        self._loop.used(self._events_number)
        return frames.send(self._events, b"".join((topic, self._name, b".", batch)))

    def _log(self, line: bytes) -> bool:
        return frames.send(self._logs, line)

    def _read_control(self) -> None:
        control = self._supervisor.dealer
        if control is None:
            return
        for message, payload in _messages(self._supervisor):
            if isinstance(message, Ping):
                self.pings += 1
                errors = self._loop.errors
                self.send(Pong(message.number, errors - self._errors_reported, *self.tokens_so_far()))
                self._errors_reported = errors
            else:
                self.on_message(message, payload)
            if self._supervisor.dealer is not control:
                return
        self._loop.drained(self._control_number)

    def _read_subscriptions(self) -> None:
        for frame in frames.receive_each(self._events):
            self.on_subscription(frame[:1] == b"\x01", frame[1:])

    def close(self, server_lives: bool) -> None:
        """Close the sockets. The last messages get a moment to leave."""
        self._send_ends()
        self._supervisor.close(LINGER_MS if server_lives else 0)
        if self._peer_check is not None:
            self._loop.on_socket(self._peer_check.socket, None)
            self._peer_check.close()
        self._loop.on_socket(self._events, None)
        self._events.close(LINGER_MS)
        self._logs.close(200 if server_lives else 0)
        self._context.term()


def _messages(supervisor: SupervisorDealer) -> Iterator[tuple[Any, bytes]]:
    """Yield the messages that have arrived; log a malformed one."""
    for frame in supervisor.receive():
        try:
            decoded = envelope.decode(frame)
        except envelope.MalformedError as problem:
            logs.get_logger().warning("malformed message from the supervisor", reason=str(problem))
        else:
            yield decoded
