"""The gateways of other nodes: which there are, when one is lost, and what their hosts need.

The end of their processes cannot be seen here. A gateway has ended when it says so, or when it was silent for ``peer_silence``. One
that was only silent is told so as soon as it can be reached, and joins again under another id: its requests were given up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from protocol import RELEASE, UNDERSTOOD
from protocol.config.api_keys import without_secrets
from protocol.config.settings import Settings
from protocol.messages.gateway_hosts import GATEWAY_HOST, ConfigureGateways, GatewayLeaves, UseKeys
from protocol.messages.peers import Hello, Rejoin, Shutdown
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.persistence.server_record import ServerRecord
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.key_file_watch import KeyFileWatch

KEYS_INTERVAL_S: Final = 0.25
"""How often the file of keys is looked at while there is a host."""
_MAX_LOST: Final = 1000
OnEnded = Callable[[str], None]

log = logs.get_logger()


class RemoteGateways:
    """All gateways of other nodes, and their hosts."""

    def __init__(
        self,
        settings: Settings,
        boot: str,
        loop: Loop,
        bus: SupervisorBus,
        peers: PeerRegistry,
        record: ServerRecord,
        key_file: KeyFileWatch,
    ) -> None:
        """None has joined yet."""
        self._settings, self._boot, self._loop, self._bus, self._peers = settings, boot, loop, bus, peers
        self._record, self._key_file = record, key_file
        self._gateways: dict[str, OnEnded] = {}
        self._hosts: set[str] = set()
        self._informed: set[str] = set()
        """Those that know that the server ends."""
        self._lost: dict[str, None] = {}
        """Those that have ended, the latest last."""
        self._left: set[str] = set()
        """Those of them that have said so, and whose end is about to be handled."""
        self._keys = UseKeys()
        """What the hosts know."""
        self.welcome: Callable[[str, Hello], None] = lambda _peer, _hello: None
        """Registers a peer and answers its Hello."""

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {GatewayLeaves: self._leaves}

    def start(self) -> None:
        """Follow the file of keys from now on."""
        self._loop.every(KEYS_INTERVAL_S, self._send_changed_keys)

    # Gateways

    def expect(self, on_ended: OnEnded) -> list[str]:
        """Return the gateways of an earlier supervisor. ``on_ended`` gets the name of each once."""
        for gateway in self._record.remote_gateways:
            self._gateways[gateway] = on_ended
        return list(self._gateways)

    def hello(self, peer: str, hello: Hello, on_ended: OnEnded) -> bool:
        """Take a gateway or the host of some; return whether it is a gateway that takes part.

        ``on_ended`` gets the name of the gateway once.
        """
        if hello.role == GATEWAY_HOST:
            self._host_hello(peer, hello)
            return False
        if hello.boot != self._boot or peer in self._lost:
            self._bus.forget(peer)
            again = hello.boot == self._boot
            self._bus.send(peer, Rejoin() if again else Shutdown(0.0, "the server was started again"))
            return False
        self._gateways[peer] = on_ended
        self._record.set_remote_gateways(list(self._gateways))
        return True

    def lost(self, peer: str) -> None:
        """Give up a gateway or a host that is silent, or does not read. Do nothing if it is neither.

        It may be connected still, and then says no other Hello unless it hears of this.
        """
        if peer in self._hosts:
            self._hosts.discard(peer)
            self._peers.remove(peer)
            self._bus.forget(peer)
            self._bus.send(peer, Rejoin())
        elif peer in self._gateways:
            self._ended(peer, Rejoin())

    def _leaves(self, gateway: str, _message: GatewayLeaves, _payload: bytes) -> None:
        self._left.add(gateway)
        self._ended(gateway)

    def has_left(self, gateway: str) -> bool:
        """Return whether a gateway has said that it leaves; once, when its end is handled."""
        left = gateway in self._left
        self._left.discard(gateway)
        return left

    def _ended(self, gateway: str, last_word: Rejoin | None = None) -> None:
        on_ended = self._gateways.pop(gateway, None)
        if on_ended is None:
            return
        self._lost[gateway] = None
        if len(self._lost) > _MAX_LOST:
            del self._lost[next(iter(self._lost))]
        self._record.set_remote_gateways(list(self._gateways))
        self._loop.call_later(0.0, partial(self._settle, gateway, on_ended, last_word))

    def _settle(self, gateway: str, on_ended: OnEnded, last_word: Rejoin | None) -> None:
        on_ended(gateway)  # this drops what waits for it
        if last_word is not None:
            self._bus.send(gateway, last_word)

    # Hosts

    def _host_hello(self, host: str, hello: Hello) -> None:
        """Tell a host what its gateways need, or why it cannot take part."""
        if hello.version not in UNDERSTOOD:
            why = f"this server runs lemonbus {RELEASE}, which does not understand {hello.release} of the gateway on {hello.node}"
            log.warning("gateway host refused", node=hello.node, reason=why)
            self._bus.send(host, Shutdown(0.0, f"{why}: install that release there"))
            return
        log.info("gateway host joined", node=hello.node, host=host)
        self._hosts.add(host)
        self.welcome(host, hello)
        self._key_file.check()
        self._keys = self._present_keys()
        self._bus.send(host, self._keys)
        self._bus.send(host, ConfigureGateways(), msgspec.json.encode(without_secrets(self._settings)))

    def _present_keys(self) -> UseKeys:
        return UseKeys(self._key_file.keys, self._key_file.exists)

    def _send_changed_keys(self) -> None:
        if not self._hosts:
            return
        self._key_file.check()
        keys = self._present_keys()
        if keys != self._keys:
            self._keys = keys
            for host in self._hosts:
                self._bus.send(host, keys)

    def end(self) -> None:
        """Tell each host, once, that the server ends. They wait for its next start."""
        for host in self._hosts - self._informed:
            self._bus.send(host, Shutdown(0.0, "the server ends", draining=True))
        self._informed |= self._hosts
