"""One host: does what the supervisor says, keeps its gateways running, and outlives the supervisor.

Invariants:

* No gateway is started before the keys and settings of the server are known.
* What the gateways read is on the disk before they can need it: the keys before the settings, these before a start.
* Without a supervisor everything goes on; gateways let requests wait, and fail them truthfully. Only a refusal or a signal
  ends the host.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.config.api_keys import key_file, write_keys
from protocol.config.gateway_settings import GatewaySettings
from protocol.config.resolver import require_key_beyond_loopback
from protocol.config.settings import Settings, write_settings
from protocol.failures import LemonbusError
from protocol.messages.gateway_hosts import GATEWAY_HOST, ConfigureGateways, UseKeys
from protocol.messages.peers import Rejoin, Shutdown, Welcome
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire.bus_address import BusAddress
from supervisor.node_agent.agent_link import AgentLink
from supervisor.processes.child_processes import ChildProcesses
from supervisor.processes.gunicorn_masters import GunicornMasters

_NEVER: Final = 2**62
"""Bodies are not put into files here: the supervisor could not read them."""
_MAX_REFUSALS: Final = 3
"""A supervisor that ends meanwhile may also break off a handshake."""
_BACKLOG: Final = 4096
_KILL_MARGIN_S: Final = 10.0

log = logs.get_logger()


class GatewayHost:
    """The parent of this machine's gateways."""

    def __init__(self, loop: Loop, given: GatewaySettings, runtime: Path, listener: socket.socket) -> None:
        """Do nothing before :meth:`begin`. ``listener``: bound, and not listening yet."""
        self._loop, self._given, self._runtime, self._listener = loop, given, runtime, listener
        self._state_dir = runtime / "state"
        self._state_dir.mkdir(mode=0o700, exist_ok=True)
        self._boot = ""
        self._running: tuple[str, Settings] | None = None
        """Run of the server and settings of the gateways."""
        self._settings = Settings()
        self._stopping = False
        self._processes: ChildProcesses | None = None
        """With the present run of the server in their environment."""
        self._masters = GunicornMasters(loop, listener.fileno(), self._start_master, lambda: self._stopping)
        self._masters.on_end = self._end_if_over
        self._refusals = 0
        self._was_connected = False
        self.refusal = ""
        """Why this host cannot take part; empty if nothing is wrong."""
        self._link = AgentLink(
            loop=loop,
            context=ProcessContext(runtime, "", os.getpid(), given.node),
            address=BusAddress(runtime, given.membership, remote=True),
            snapshot=None,
            on_message=self._received,
            on_lost=lambda: log.info("the connection to the supervisor has ended; the gateways wait for the next one"),
            role=GATEWAY_HOST,
        )
        self._link.on_refused = self._key_refused
        self.log = self._link.log

    def begin(self) -> None:
        """Connect to the supervisor."""
        log.info("gateway host started", supervisor=self._given.membership.address, node=self._given.node)
        self._link.begin()

    def _received(self, message: Any, payload: bytes) -> None:
        match message:
            case Welcome():
                self._was_connected, self._boot = True, message.boot
            case UseKeys():
                self._use_keys(message)
            case ConfigureGateways():
                self._configure(msgspec.json.decode(payload, type=Settings))
            case Rejoin():
                log.info("the supervisor has given this host up, and hears of it again")
                self._link.end()
                self._link.begin()
            case Shutdown(draining=True):
                log.info("the server ends; the gateways wait for its next start")
            case Shutdown():
                self._refuse(message.reason)
            case _:
                pass

    def _use_keys(self, message: UseKeys) -> None:
        if message.required:
            write_keys(self._state_dir / key_file(self._settings).name, message.keys)

    def _configure(self, settings: Settings) -> None:
        given = self._given
        local = {"host": given.host, "port": given.port, "gateway_workers": given.gateway_workers}
        folders = {
            "runtime_dir": str(self._runtime),
            "state_dir": str(self._state_dir),
            "cache_dir": str(self._state_dir),
        }
        settings = msgspec.structs.replace(settings, **local, **folders, spool_over=_NEVER)
        if self._stopping or self._running == (self._boot, settings):
            return
        if self._running == (self._boot, msgspec.structs.replace(settings, log_level=self._settings.log_level)):
            self._settings, self._running = settings, (self._boot, settings)
            write_settings(settings, self._runtime, {})  # for new gateways; the supervisor tells those that run
            return
        try:
            require_key_beyond_loopback(settings)
        except LemonbusError:
            self._refuse(
                f"refusing to serve at {given.host} without an API key: make one with `lemonbus keys add` on the head,"
                " or set allow_remote there"
            )
            return
        first = self._running is None
        self._settings, self._running = settings, (self._boot, settings)
        write_settings(settings, self._runtime, {})
        log.info("gateways start" if first else "gateways are replaced: the server has other settings", boot=self._boot)
        self._processes = ChildProcesses(self._loop, ProcessContext(self._runtime, self._boot, os.getpid(), given.node))
        if self._masters.present is not None:
            self._masters.retire(self._masters.present)
        self._start_master()
        if first:
            self._listener.listen(_BACKLOG)

    def _start_master(self) -> None:
        if self._processes is not None:
            self._masters.start(self._processes)

    def _key_refused(self) -> None:
        """Give up if the supervisor has never admitted the keys of the token."""
        self._refusals += 1
        if not self._was_connected and self._refusals >= _MAX_REFUSALS:
            self._refuse(
                f"the supervisor at {self._given.membership.address} does not admit this token; `lemonbus nodes token`"
                " on the head prints the present one"
            )

    def _refuse(self, why: str) -> None:
        log.error("this gateway cannot take part", reason=why)
        self.refusal = why
        self.stop()

    def stop(self) -> None:
        """Let running requests end within the grace period, then end. A second time: end now."""
        if self._stopping:
            self._masters.kill()
            return
        self._stopping = True
        self._masters.terminate()
        self._loop.call_later(self._settings.grace + _KILL_MARGIN_S, self._masters.kill)
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._stopping and not self._masters:
            self._loop.stop()

    def close(self) -> None:
        """Close the sockets."""
        self._link.close()
