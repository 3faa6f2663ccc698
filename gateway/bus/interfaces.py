"""What the handlers of messages use of the session (``session.py``) and of the sockets (``sockets.py``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.bus.worker_subscriptions import EventSocket
from protocol.config.api_keys import ApiKey
from protocol.ids import RequestKey
from protocol.messages import peers, work
from protocol.messages.readiness import ServerReadiness


class SessionControl(Protocol):
    """The parts of the session that messages change."""

    def welcomed(
        self, supervisor_pid: int, code: peers.LoadedCode | None = None, keys: list[ApiKey] | None = None
    ) -> None:
        """Admit requests from now on: this supervisor has taken over this process."""

    def server_changed(self, readiness: ServerReadiness) -> None:
        """Note what the supervisor says about the whole server."""

    def pause_accepting(self) -> None:
        """Accept no new connections until a supervisor has taken over this process."""

    def send_end(self, message: work.AnswersReceived) -> None:
        """Tell the supervisor, if it is there, how something ended that was sent before."""

    def rejoin(self) -> None:
        """Begin anew under another id: the supervisor has given up everything of this process."""

    def drain(self, grace: float, *, replaced: bool = False) -> None:
        """Admit no more requests; running ones have ``grace`` seconds.

        ``replaced``: this process ends, not the server.
        """


class ControlSocket(EventSocket, Protocol):
    """The parts of the sockets that the handlers use (``sockets.py``)."""

    def send(self, message: msgspec.Struct, payload: bytes = b"", *, must_arrive: bool = False) -> None:
        """Send to the supervisor; raises ``LemonbusError`` if its outbox is full, unless the message ``must_arrive``."""

    def read_control(self) -> None:
        """Deliver what the supervisor has sent."""

    def find_supervisor(self) -> int:
        """Return the pid of the supervisor that accepts connections now, 0 if there is none."""

    def connect_control(self, snapshot: bytes) -> None:
        """Say Hello with ``snapshot`` on a new connection to that supervisor."""

    def disconnect_control(self) -> None:
        """Drop the connection with everything that waits in it, if there is one."""

    def connection_is_broken(self) -> bool:
        """Return whether that connection has ended, or could not be made."""

    def watch_supervisor(self, pid: int) -> None:
        """Tell the session when the process with this pid has ended, instead of the one watched before."""

    def use_topic(self, gateway: str, former: str) -> None:
        """Take the events for this id from now on, and no more for the former one: workers cancel what they do for that."""

    def hold(self, attempt: RequestKey, on: bool) -> None:
        """Let a worker hold the answer of an attempt, or go on."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back in the hub, in a later iteration of its loop."""
