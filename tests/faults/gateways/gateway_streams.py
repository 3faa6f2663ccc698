"""Streams at every gateway process. The kernel chooses which one gets a connection, unless the others are stopped."""

from __future__ import annotations

from contextlib import ExitStack

from tests.support import processes
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer


def streams_at_each(
    server: LemonbusServer, model: str, tokens: int, count: int = 1, last_tokens: int = 0
) -> list[tuple[HttpExchange, int]]:
    """For each gateway process, return its pid and ``count`` streams that have begun. Those of the last gateway have

    ``last_tokens`` tokens, if given, so that they cannot end before the test stops them.
    """
    gateways = server.gateway_pids()
    streams: list[tuple[HttpExchange, int]] = []
    for gateway in gateways:
        begun = []
        with ExitStack() as stack:
            for other in gateways:
                if other != gateway:
                    stack.enter_context(processes.stopped(other))
            for _ in range(count):
                stream = server.client.start_chat(
                    model, stream=True, max_tokens=last_tokens if last_tokens and gateway == gateways[-1] else tokens
                )
                stream.until(lambda it: len(it.events) > 1)
                begun.append((stream, server.gateway_of(stream)))
        assert {pid for _, pid in begun} == {gateway}
        streams += begun
    return streams
