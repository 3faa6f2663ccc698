"""Tells gateways where their attempts run: a little later and several together, off the path of the first token."""

from __future__ import annotations

from typing import Final

from protocol.messages.work import Granted, GrantedAttempt
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus

DELAY_S: Final = 0.05
"""The worker's events usually reach the gateway sooner, and they also name the worker."""


class GrantNotices:
    """Collects grants by gateway and sends them together."""

    def __init__(self, loop: Loop, bus: SupervisorBus) -> None:
        """Nothing is collected yet."""
        self._loop, self._bus = loop, bus
        self._by_gateway: dict[str, list[GrantedAttempt]] = {}

    def add(self, gateway: str, grant: GrantedAttempt) -> None:
        """Tell the gateway within a moment."""
        if not self._by_gateway:
            self._loop.call_later(DELAY_S, self.send)
        self._by_gateway.setdefault(gateway, []).append(grant)

    def send(self) -> None:
        """Send everything collected. A gateway must have it before the end of the worker that it names."""
        grants, self._by_gateway = self._by_gateway, {}
        for gateway, attempts in grants.items():
            self._bus.send(gateway, Granted(attempts))
