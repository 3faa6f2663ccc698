"""Messages about the peers themselves, between the supervisor and each of them: hello, load, ready, ended."""

from __future__ import annotations

import msgspec

from protocol import RELEASE, VERSION
from protocol.config.api_keys import ApiKey
from protocol.failures import Failure
from protocol.messages.models import PolicyOverrides
from protocol.messages.work import RunningAnswer
from protocol.models.recipes import OptionValue
from protocol.times import Seconds, UnixTime
from protocol.wire.envelope import control_message, stable_message


class Peer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process on the bus."""

    role: str
    id: str
    pid: int
    node: str = ""
    """The name of its node; empty: the head."""


class ModelInUse(PolicyOverrides, frozen=True, omit_defaults=True):
    """The model of a worker, in a form that every version understands: only new fields may be added."""

    name: str
    asked: dict[str, OptionValue] = msgspec.field(default_factory=dict)
    """The options that a call asked for."""


@stable_message
class Hello(msgspec.Struct, frozen=True):
    """Any peer → supervisor, the first message of a DEALER with the routing id ``id``.

    Its payload is a snapshot (:mod:`protocol.messages.recovery`), in the form of the sender's version.
    """

    role: str
    """``gateway``, ``worker`` or ``job``."""
    id: str
    pid: int
    boot: str
    """The boot that the peer was started for. Any other boot is answered with :class:`Shutdown`."""
    version: int = VERSION
    """The version of the protocol that the peer speaks."""
    release: str = RELEASE
    """The release of lemonbus that it runs."""
    model: ModelInUse | None = None
    """The model of a worker that has an engine."""
    endpoint: str = ""
    """Where a worker publishes its events. The worker alone decides that; others use what they are told."""
    node: str = ""
    """The name of the node where the peer runs; empty: the head."""
    remote_endpoint: str = ""
    """Where a worker publishes the same events for gateways on other nodes; empty: nowhere, because there are none."""
    proof: str = ""
    """That a peer on another node is the one with this id: see ``protocol/wire/peer_proof.py``; empty: the peer is on the head."""


class LoadedCode(msgspec.Struct, frozen=True):
    """The code that a supervisor runs, in a form that every version understands: only new fields may be added."""

    release: str
    id: str
    """A new value each time a release is loaded from its files, even the same release."""


@stable_message
class Welcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → any peer, the answer to :class:`Hello`."""

    boot: str
    pid: int
    """The supervisor's pid.

    The peer holds a pidfd on it; when the supervisor has ended, the peer says Hello to its successor.
    """
    code: LoadedCode | None = None
    keys: list[ApiKey] | None = None
    """To a gateway: the API keys of the present settings, as digests. It may have started with other settings."""
    log_level: str = ""
    """The least level that the peer is to log from now on, whatever it was started with."""
    clock: UnixTime = 0.0
    """To a process of another node: what the clock of the head shows now. Clients read no other one, and keys expire by it."""


@stable_message
class Ping(msgspec.Struct, frozen=True):
    """Supervisor → any peer, every second. A peer that is alive but stopped (SIGSTOP) does not answer."""

    number: int


@stable_message
class Pong(msgspec.Struct, frozen=True, omit_defaults=True):
    """Any peer → supervisor, at once: the answer to :class:`Ping`."""

    number: int
    errors: int = 0
    """Exceptions that the peer's own code has raised since its last answer.

    They are programming errors, and health counts them.
    """
    tokens: int = 0
    """Output tokens that a worker has produced since its start, those of ``running`` included."""
    running: list[RunningAnswer] = []
    """The attempts of a worker that have produced any."""


@stable_message
class Shutdown(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → any peer: finish running work within ``grace`` seconds, then exit."""

    grace: Seconds = 0.0
    reason: str = ""
    draining: bool = False
    """The whole server ends: requests that are cut off fail with ``draining``."""
    refused: bool = False
    """To an agent, with ``draining``: the server cannot use it, and a new one like it would be refused as well."""


@control_message
class Rejoin(msgspec.Struct, frozen=True):
    """Supervisor → gateway, or host of gateways, on another node: it was silent for too long, and everything of it was given up.

    Its connection may be whole. It says :class:`Hello` again, on a new connection and under another id.
    """


@stable_message
class PauseAccepting(msgspec.Struct, frozen=True):
    """Supervisor → gateway of another version: accept no new connections until a :class:`Welcome` or :class:`Shutdown`.

    A gateway of the supervisor's own version is about to accept them.
    """


@control_message
class WorkerUp(msgspec.Struct, frozen=True):
    """Supervisor → gateways: connect to this worker's events."""

    worker: str
    endpoint: str
    node: str = ""
    """The node where it runs; empty: the head."""


@control_message
class WorkerGone(msgspec.Struct, frozen=True):
    """Supervisor → gateways: this worker has ended. Read its last events, then end its open attempts."""

    worker: str
    failure: Failure


@control_message
class Draining(msgspec.Struct, frozen=True):
    """Supervisor → gateways: accept no new requests. Running ones have ``grace`` seconds."""

    grace: Seconds
