"""Checks of a server after the last fault: idle, every model answers, and the log has no error of the server's own code."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.soak import oracle
from tests.soak.clients import PATIENCE_S
from tests.soak.history import History
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

SETTLE_S: Final = 60.0
"""After the last fault, within this time the server must be idle and every model must answer again."""


def wait_idle(server: LemonbusServer) -> None:
    """Wait until nothing runs and nothing waits."""
    wait_for(lambda: _is_idle(server), "no grant and no queue is left", SETTLE_S)


def _is_idle(server: LemonbusServer) -> bool:
    """Return whether it is idle; False while its gateways are replaced, because the last fault may be a moment ago."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        state = server.state()
        return bool(state["granted"] == state["queued"] == 0)
    return False


def wait_answers(server: LemonbusServer) -> None:
    """Wait until each model answers."""
    for model in (*oracle.TEXTS, oracle.ENDLESS):
        wait_for(partial(_answers, server, model), f"{model} answers", SETTLE_S)


def _answers(server: LemonbusServer, model: str) -> bool:
    exchange = server.client.start_chat(model, server.admin_headers, max_tokens=64).finish(PATIENCE_S)
    wrong = oracle.check_chat(exchange, model, 64)
    assert not wrong, wrong
    return exchange.status == 200


def check_log(lines: list[dict[str, Any]], unread: list[str], history: History) -> None:
    """Check that no log line is broken and no programming error has happened."""
    for line in unread[:5]:
        history.violate(f"a line of the log is not JSON: {line[:300]}")
    for record in lines:
        if "exception" in record:
            text = str(record["exception"])[-600:]
            history.violate(f"an exception: {record.get('process')} {record.get('event')} {text}")


def write_log(path: Path, lines: list[dict[str, Any]], history: History) -> None:
    """Write what was done and what was logged, in the order of time."""
    shown = [(str(line["ts"]), json.dumps(line)) for line in lines]
    for fault in history.faults:
        for at, word in ((fault.began, "FAULT"), (fault.ended, "FAULT ENDS")):
            if at < float("inf"):
                stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
                shown.append((stamp, f"{stamp} {word} {fault.what} at {fault.place} {fault.model}"))
    path.write_text("\n".join(text for _, text in sorted(shown)) + "\n")
