"""How a house ends: not ready → refuse → let run → stop the workers → stop the gateway → leave nothing."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final

from protocol import logs
from protocol.loop import Timer
from protocol.staff import Draining, Leave
from supervisor.house import House
from supervisor.lifecycle import State

_LAST_WORDS_S: Final = 5.0
"""After the deadline: how long workers and gateway have to tell what they cut off."""

log = logs.get()


class Closing:
    """The orderly end, begun by a signal; a second signal makes it short."""

    def __init__(self, house: House) -> None:
        """Nothing happens yet."""
        self._house = house
        self._gateway_told = False
        self._deadline: Timer | None = None
        house.on_quiet = self._look

    def begin(self) -> None:
        """Stop taking requests; end when what runs has ended, at the latest after the grace."""
        house = self._house
        if house.scheduler.closing:
            log.warning("second signal, ending at once")
            house.processes.kill_all()
            return
        grace = house.settings.grace
        log.info("stopping", granted=house.scheduler.running, queued=house.scheduler.queued, grace=grace)
        for gateway in house.peers.of("gateway"):
            house.bus.send(gateway, Draining(grace))
        house.scheduler.close()
        for job in house.peers.of("job"):
            house.bus.send(job, Leave(0.0, "draining"))
        house.go_on()
        self._deadline = house.loop.call_later(grace, self._cut)
        house.loop.every(0.02, self._look)

    def _look(self) -> None:
        house = self._house
        if not house.scheduler.closing:
            return
        if house.gateway is None:
            self._shut()
        if house.scheduler.granted == 0:
            self._stop_rest()
        if len(house.processes) == 0:
            house.loop.stop()

    def _stop_rest(self) -> None:
        house = self._house
        if not self._gateway_told and house.gateway is not None:
            self._gateway_told = True
            house.processes.terminate(house.gateway)
        for seat in house.scheduler.seats.values():
            if seat.state is State.SPAWNED:
                house.scheduler.end(seat)
            elif seat.state is not State.STOPPING:
                house.scheduler.leave(seat)
        house.perform(house.scheduler.effects())

    def _cut(self) -> None:
        house = self._house
        log.warning("grace is over", granted=house.scheduler.running)
        for worker in house.peers.of("worker"):
            house.bus.send(worker, Leave(0.0, "grace is over"))
        if house.gateway is not None:
            house.processes.terminate(house.gateway)
        house.loop.call_later(_LAST_WORDS_S, house.processes.kill_all)

    def _shut(self) -> None:
        """Let clients be refused that would wait for our own end: a gateway that left in good order has done so itself.

        The listener is shut, not closed: it belongs to whoever bound it.
        """
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._house.listen_fd)) as listener:
            listener.shutdown(socket.SHUT_RDWR)
