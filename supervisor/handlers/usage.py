"""The call about usage: who has used what."""

from __future__ import annotations

from protocol.failures import invalid
from protocol.messages.usage import GetUsage, UsageReport
from supervisor.internal_errors import InternalErrors
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.usage.store import MAX_ROWS, TooManyRowsError
from supervisor.usage.usage_writer import UsageWriter


class UsageCalls:
    """Answers this call."""

    def __init__(self, writer: UsageWriter, calls: GatewayCalls, errors: InternalErrors) -> None:
        self._writer, self._calls, self._errors = writer, calls, errors

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of this message."""
        return {GetUsage: self._get}

    def _get(self, peer: str, call: GetUsage, _payload: bytes) -> None:
        def answer(result: UsageReport | Exception) -> None:
            if isinstance(result, UsageReport):
                self._calls.answer(peer, call.number, result)
            elif isinstance(result, TooManyRowsError):
                reason = f"these are more than {MAX_ROWS} rows: ask for fewer days, for one key, or for one model"
                self._calls.reply(peer, call.number, invalid(reason, "since").failure)
            else:
                self._calls.reply(peer, call.number, self._errors.failure_of(result, where="usage"))

        self._writer.read(call.filter, answer)
