"""The gateway's session with the supervisor: what requests and calls send to it.

Resources get it in their constructor. They use :attr:`SupervisorSession.settings`, :meth:`SupervisorSession.call` and
:meth:`SupervisorSession.start_call`; for inference, :mod:`gateway.requests.answer_stream`.
:mod:`gateway.bus.message_handlers` passes what comes back to the request or call with its number.

:attr:`SupervisorSession.admission` says whether new ones are admitted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from gevent.event import Event as GreenletEvent

from gateway.bus.admission import GatewayAdmission
from gateway.bus.calls import BuildMessage, SupervisorCall
from gateway.bus.interfaces import ControlSocket
from gateway.bus.message_handlers import MessageHandlers
from gateway.bus.pending_requests import PendingRequests
from gateway.bus.request_dispatcher import RequestDispatcher
from gateway.bus.supervisor_connection import EndMessage, SupervisorConnection
from gateway.http.request_context import RequestContext, is_question, request_context
from gateway.http.request_counts import RequestCounts
from gateway.requests.admission_states import (
    ADMISSION_FAILURES,
    MAX_WAIT_FOR_SUPERVISOR_S,
    WAITING_STATES,
    AdmissionEvent,
    AdmissionState,
)
from gateway.requests.exchange import RequestExchange
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.received_ends import ReceivedEnds
from gateway.requests.spool import Spool
from protocol import ids
from protocol.config.api_keys import ApiKey
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.calls import CallResult
from protocol.messages.peers import LoadedCode
from protocol.messages.readiness import ServerReadiness
from protocol.models.nodes import HEAD
from protocol.runtime import logs
from protocol.wire import envelope

R = TypeVar("R")
_GIVEN_UP = Failure(Code.LOST, "the server could not reach this gateway for too long, and has given the request up")


def new_gateway_id(node: str) -> tuple[str, str]:
    """Return a fresh id for a gateway process, and the proof for it: empty on the head."""
    if node == HEAD:
        return ids.peer_id("gateway"), ""
    from protocol.wire.peer_proof import new_identity  # noqa: PLC0415 - only servers with a cluster need it

    return new_identity("gateway")


class SupervisorSession:
    """What this gateway has asked the supervisor for. It only changes in callbacks of gevent's hub."""

    def __init__(self, gateway: str, settings: Settings, spool: Spool, node: str = HEAD, proof: str = "") -> None:
        """Start without a supervisor."""
        self.id, self.proof = gateway, proof
        """The id of this process and, on another node than the head, the proof for it."""
        self.node = node
        """The node of this process."""
        self.settings = settings
        self.spool = spool
        self.admission = GatewayAdmission(self._overdue)
        self.has_started = GreenletEvent()
        """Set when a supervisor has answered for the first time."""
        self.request_counts = RequestCounts()
        """How many requests this process has answered; reported with each answer to a ping."""
        self._received_ends = ReceivedEnds()
        self._pending = PendingRequests()
        self.on_shutdown: Callable[[float], None] | None = None
        """Called when this process has to end, with the seconds left for running requests."""
        self.on_pause: Callable[[], None] = lambda: None
        """Called when new connections are to be left to other processes."""
        self.on_resume: Callable[[], None] = lambda: None
        """Called when this process may accept them again."""
        self.on_setting_keys: Callable[[list[ApiKey]], None] = lambda _: None
        """Called with the API keys of the present settings."""
        self._paused = False
        self.supervisor_code: LoadedCode | None = None
        """The release and code of the supervisor that answered last."""

        self._parts: dict[Callable[[SupervisorSession], Any], Any] = {}

    def part(self, make: Callable[[SupervisorSession], R]) -> R:
        """Return what routes keep as long as this session; ``make`` makes it when it is first asked for."""
        if make not in self._parts:
            self._parts[make] = make(self)
        found: R = self._parts[make]
        return found

    def open(self, sockets: ControlSocket) -> MessageHandlers:
        """Use ``sockets`` from now on, and return the handlers for what they receive."""
        self._sockets = sockets
        self._connection = SupervisorConnection(sockets, self._pending)
        self._requests = RequestDispatcher(
            self.id,
            self.settings,
            self.spool,
            self.admission,
            self._pending,
            self._connection,
            self._received_ends,
            self.request_counts,
            sockets.hold,
        )
        self._message_handlers = MessageHandlers(
            self,
            sockets,
            self._pending,
            self.request_counts,
            self._received_ends,
            elsewhere=self.node != HEAD,
        )
        self._requests.node_of = self._message_handlers.node_of
        return self._message_handlers

    def connect(self) -> None:
        """Say Hello to the supervisor."""
        self._connection.connect()

    # For resources

    def call(self, env: dict[str, Any], build: BuildMessage, cls: type[R], payload: bytes = b"") -> R:
        """Call the supervisor and wait for its report: ``call(req.env, lambda n: GetModel(n, x), ModelEntry)``.

        Raises ``LemonbusError`` if the supervisor refuses, or if the client hangs up meanwhile, which abandons the
        call.
        """
        with self.start_call(env, build, payload=payload) as call:
            for message in call:
                if isinstance(message, CallResult):
                    report: R = envelope.unpack_payload(call.report, cls)
                    return report
        raise Failure(Code.INTERNAL, "the supervisor did not answer").raised()

    def start_call(
        self, env: dict[str, Any], build: BuildMessage, *, endless: bool = False, payload: bytes = b""
    ) -> SupervisorCall:
        """Call the supervisor and get everything that it answers; see :class:`SupervisorCall`."""
        self.admission.admit(question=not endless and is_question(env.get("REQUEST_METHOD", "")))
        request_context(env).check_access()
        number = self._pending.next_number()
        call = self._pending.calls[number] = SupervisorCall(self, number, env, build(number), payload, endless=endless)
        try:
            self._connection.call(call)
        except BaseException:
            call.close(sent=False)
            raise
        return call

    # For requests/answer_stream.py

    def start_exchange(
        self, request: InferenceRequest, context: RequestContext, reservation: int = 0
    ) -> RequestExchange:
        """Send an inference request: see :meth:`RequestDispatcher.start`."""
        return self._requests.start(request, context, reservation)

    def release(self, exchange: RequestExchange) -> None:
        """Forget the exchange: see :meth:`RequestDispatcher.release`."""
        self._requests.release(exchange)

    # For calls (their CallSession)

    def send_end(self, message: EndMessage) -> None:
        """Tell the supervisor, if it is there, how something ended that was sent before."""
        self._connection.send_end(message)

    def end_call(self, number: int) -> None:
        """Deliver no more messages to this call."""
        self._pending.calls.pop(number, None)

    # Start and shutdown, in the hub

    def welcomed(self, supervisor_pid: int, code: LoadedCode | None = None, keys: list[ApiKey] | None = None) -> None:
        """Admit requests: the supervisor with this pid, which runs this code, knows this gateway.

        ``keys``: those of the present settings; None if unspecified.
        """
        if self.admission.state is AdmissionState.LOST:
            return
        self.supervisor_code = code
        if keys is not None:
            self.on_setting_keys(keys)
        self._connection.welcome(supervisor_pid)
        self.admission.apply(AdmissionEvent.WELCOMED)
        if self._paused and self.admission.state is AdmissionState.OPEN:
            self._paused = False
            self.on_resume()
        self.has_started.set()

    def server_changed(self, readiness: ServerReadiness) -> None:
        """Note what the supervisor says about the whole server."""
        self.admission.server = readiness

    def pause_accepting(self) -> None:
        """Leave new connections to others until :meth:`welcomed`: a supervisor of another version is about to take over."""
        if self.admission.state in WAITING_STATES and not self._paused:
            self._paused = True
            self.on_pause()

    def supervisor_ended(self) -> None:
        """Let requests wait for the supervisor's successor. Running ones go on."""
        if self.admission.state is AdmissionState.LOST:
            return
        if self.admission.state is AdmissionState.OPEN:
            # No warning: it may have been replaced on purpose. If not, the next one says so ("the last supervisor has
            # ended").
            logs.get_logger().info("the supervisor has ended; requests wait for the next one", gateway=self.id)
        self._connect_again()

    def _connect_again(self) -> None:
        self.admission.apply(AdmissionEvent.SUPERVISOR_ENDED)
        self._connection.supervisor_ended()
        self._message_handlers.notify_exchanges()

    def rejoin(self) -> None:
        """Begin anew under another id, on a gateway of another node: the supervisor has given up everything of this process.

        Requests wait until it has answered, also those whose clients have nothing of the answer yet.
        """
        if self.admission.state is AdmissionState.LOST:
            return
        former = self.id
        self.id, self.proof = new_gateway_id(self.node)
        logs.get_logger().warning("the supervisor had given this gateway up", gateway=former, now=self.id)
        self._sockets.drain_events()
        self._connect_again()
        self._pending.fail_with_worker(_GIVEN_UP)
        self._requests.gateway = self.id
        self._sockets.use_topic(self.id, former)
        self.request_counts.forget_reports()

    def check_connection(self, now: float) -> None:
        """Say Hello again if no supervisor answers, and limit how long requests wait for one. Call it twice a second.

        ``now``: the time of ``time.monotonic``.
        """
        if self._connection.welcomed or self.admission.state is AdmissionState.LOST:
            return
        self._connection.repeat_hello(now)
        if self._overdue(now):
            self._pending.fail_waiting(self.admission.refusal)

    def end_withdrawn(self) -> None:
        """End the requests and calls whose keys were revoked, have expired or have lost a right.

        Call it twice a second.
        """
        self._pending.end_withdrawn()

    def _overdue(self, now: float) -> bool:
        return not self._connection.welcomed and now - self._connection.waiting_since >= MAX_WAIT_FOR_SUPERVISOR_S

    def drain(self, grace: float, *, replaced: bool = False) -> None:
        """Admit no more requests; running ones have ``grace`` seconds.

        ``replaced``: this process ends, not the server.
        """
        if self.admission.state in (AdmissionState.DRAINING, AdmissionState.REPLACED, AdmissionState.LOST):
            return
        waits = self.admission.state in WAITING_STATES
        self.admission.apply(AdmissionEvent.REPLACE if replaced else AdmissionEvent.DRAIN)
        if waits:  # no supervisor will ever answer this process
            if replaced:
                self._pending.process_replaced()
            self._pending.fail_waiting(self.admission.refusal)
        self._pending.fail_endless_calls(self.admission.refusal)
        if self.on_shutdown is not None:
            self.on_shutdown(grace)

    def keeper_ended(self) -> None:
        """Fail the requests that no worker has. Running ones may go on during the grace period."""
        if self.admission.state is AdmissionState.LOST:
            return
        self.admission.apply(AdmissionEvent.KEEPER_ENDED)
        self._connection.close()
        self._message_handlers.supervisor_lost()
        self._pending.fail_without_worker(ADMISSION_FAILURES[AdmissionState.LOST])
        if self.on_shutdown is not None:
            self.on_shutdown(self.settings.grace)

    def fail_everything(self) -> None:
        """Fail all requests and calls that still run: the grace period is over."""
        code = Code.SUPERVISOR_LOST if self.admission.state is AdmissionState.LOST else Code.DRAINING
        self._pending.fail_all(Failure(code, "the server stopped", retry_after=5))

    def report_last_requests(self) -> None:
        """Report what was counted, before this process ends; without a supervisor, it is lost."""
        with contextlib.suppress(LemonbusError):
            self._message_handlers.report_requests()

    def give_up_waiting(self) -> None:
        """Fail everything that waits for a supervisor: this process ends, because none answers it."""
        self._pending.fail_waiting(self.admission.refusal)
