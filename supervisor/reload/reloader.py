"""Reads the configuration again on a call or SIGHUP, says what changes, and lets a new supervisor take over. A call sets the log level.

Invariants:

* A wrong configuration changes nothing, nor does an address that cannot be listened on.
* Settings that take effect at the next start keep their present value until then.
* At most one process reads the configuration at a time. Each later call gets a reading that began after it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import structs

from protocol.config.fields import setting_fields
from protocol.config.settings import Settings, read_origins, write_settings
from protocol.failures import Code, Failure, LemonbusError, write_failure
from protocol.messages.reload import ReloadReport, ReloadSettings, SetLogLevel, SettingChange, SettingEffect
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.internal_errors import InternalErrors
from supervisor.models.registry import ModelRegistry
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.listener import bind_listener, shut_listener
from supervisor.processes.setting_effects import EFFECTS
from supervisor.reload.plan import plan_reload
from supervisor.reload.resolution import RESULT_VARIABLE, Resolution
from supervisor.reload.rolling_restart import reloadable_models
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.scheduler.view import SchedulerView

MODULE: Final = "supervisor.reload.resolution"
READING_TIMEOUT_S: Final = 10.0
LOG_LEVEL_ORIGIN: Final = "POST log-level"
"""Where a level comes from that a client has set."""
_READ_SIZE: Final = 65_536

log = logs.get_logger()


class Successor(Protocol):
    """How this supervisor is replaced."""

    def hold_listener(self, listener: socket.socket) -> None:
        """Make the keeper hold this listener instead of the present one."""

    def take_over(self) -> None:
        """Let a new supervisor take over. Only this one ends."""


class _Caller(NamedTuple):
    """A caller that waits for the result: a gateway's call, or SIGHUP with an empty ``peer``."""

    peer: str
    number: int
    dry_run: bool
    repeated: bool = False


class Reloader:
    """The reloads of one supervisor."""

    def __init__(
        self,
        settings: Settings,
        process_context: ProcessContext,
        loop: Loop,
        listen_fd: int,
        processes: ChildProcesses,
        models: ModelRegistry,
        view: SchedulerView,
        calls: GatewayCalls,
        errors: InternalErrors,
        successor: Successor,
        secrets: Mapping[str, str],
    ) -> None:
        """``secrets``: variables with keys, which were removed from the environment at the start."""
        self._settings, self._process_context, self._loop, self._listen_fd = settings, process_context, loop, listen_fd
        self._processes, self._models, self._view = processes, models, view
        self._calls, self._errors = calls, errors
        self._successor, self._secrets = successor, secrets
        self.on_hangups_done: Callable[[int], None] = lambda _: None
        """Called at the end of each reading, whatever its result, with the number of :meth:`hangup` calls that it was for."""
        self._callers: list[_Caller] = []
        """Callers that the present reading is for."""
        self._next: list[_Caller] = []
        """Callers that came during it."""
        self._output = bytearray()

    def handlers(self) -> dict[type, Handler]:
        """Return what the call does."""
        return {ReloadSettings: self._requested, SetLogLevel: self._set_log_level}

    def hangup(self) -> None:
        """Reload because of SIGHUP; the result is in the log."""
        self._ask(_Caller("", 0, dry_run=False))

    def _requested(self, peer: str, call: ReloadSettings, _payload: bytes) -> None:
        self._ask(_Caller(peer, call.number, call.dry_run, call.repeated))

    def _set_log_level(self, peer: str, call: SetLogLevel, _payload: bytes) -> None:
        """Let a successor take over with the level, which tells it to all processes."""
        old = self._settings
        if call.level != old.log_level:
            origins = {**read_origins(self._process_context.runtime), "log_level": LOG_LEVEL_ORIGIN}
            self._hand_over(old, structs.replace(old, log_level=call.level), origins)
            change = SettingChange("log_level", old.log_level, call.level, list(EFFECTS["log_level"]), LOG_LEVEL_ORIGIN)
            log.info("setting changed", **_log_fields(change))
        self._calls.answer(peer, call.number, None)

    def _ask(self, caller: _Caller) -> None:
        if self._callers:
            self._next.append(caller)
            return
        self._callers = [caller]
        self._read()

    # Reading

    def _read(self) -> None:
        self._output.clear()
        read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        environment = {**self._secrets, RESULT_VARIABLE: str(write_fd)}
        try:
            os.set_blocking(write_fd, True)
            child = self._processes.start(
                "configuration", MODULE, partial(self._ended, read_fd), environment, [write_fd]
            )
        finally:
            os.close(write_fd)
        self._loop.on_readable(read_fd, partial(self._receive, read_fd))
        self._loop.call_later(READING_TIMEOUT_S, partial(self._give_up, child))

    def _receive(self, read_fd: int) -> None:
        piece = os.read(read_fd, _READ_SIZE)
        self._output += piece
        if not piece:
            self._loop.on_readable(read_fd, None)

    def _give_up(self, child: ChildProcess) -> None:
        self._processes.kill(child)  # does nothing if it has ended

    def _ended(self, read_fd: int, why: str) -> None:
        self._loop.on_readable(read_fd, None)
        try:
            while piece := os.read(read_fd, _READ_SIZE):
                self._output += piece
        except BlockingIOError:
            pass
        finally:
            os.close(read_fd)
        try:
            self._finish(self._resolution(why))
        except (LemonbusError, OSError) as problem:  # a full disk, for example
            self._refuse(self._errors.failure_of(problem, where="reload"))
        finally:
            self.on_hangups_done(sum(not caller.peer for caller in self._callers))
            self._callers, self._next = self._next, []
            if self._callers:
                self._read()

    def _resolution(self, why: str) -> Resolution:
        try:
            return msgspec.json.decode(bytes(self._output), type=Resolution)
        except msgspec.DecodeError:
            reason = f"the configuration could not be read within {READING_TIMEOUT_S:g} s"
            if why != "SIGKILL":
                reason = f"the process that reads the configuration ended: {why}"
            raise Failure(Code.INTERNAL, reason, retry_after=1).raised() from None

    # The result

    def _finish(self, found: Resolution) -> None:
        if found.settings is None:
            raise (found.failure or Failure(Code.INTERNAL, "the configuration was not read")).raised()
        old = self._settings
        changes = plan_reload(
            old, found.settings, found.origins, reloadable_models(self._models, self._view, found.settings)
        )
        if self._is_to_be_applied:
            if changes:
                self._apply(old, found, changes)
            for warning in found.warnings:
                log.warning("the configuration has a problem", reason=warning)
        elif (listener := self._listener(old, found.settings, listens=False)) is not None:
            listener.close()
        for caller in self._callers:
            report = ReloadReport(not caller.dry_run, changes, found.warnings, caller.repeated)
            if caller.peer:
                self._calls.reply(caller.peer, caller.number, report)

    @property
    def _is_to_be_applied(self) -> bool:
        """Whether a caller applies the result; otherwise it is only told.

        The log is about what happened to the server.
        """
        return any(not caller.dry_run for caller in self._callers)

    def _apply(self, old: Settings, found: Resolution, changes: Sequence[SettingChange]) -> None:
        new = found.settings or old
        effective = settings_until_next_start(old, new)
        if effective != old:
            kept = {name for name in setting_fields() if getattr(effective, name) != getattr(new, name)}
            before = read_origins(self._process_context.runtime)
            origins = {name: origin for name, origin in found.origins.items() if name not in kept}
            self._hand_over(old, effective, origins | {name: before[name] for name in kept & before.keys()})
        for change in changes:
            log.info("setting changed", **_log_fields(change))

    def _hand_over(self, old: Settings, new: Settings, origins: Mapping[str, str]) -> None:
        """Give the new settings to a successor; raises a failure, in which case nothing has changed."""
        listener = self._listener(old, new)
        try:
            write_settings(new, self._process_context.runtime, origins)
        except OSError as problem:
            if listener is not None:
                listener.close()
            why = f"the new settings could not be written into the runtime directory: {problem.strerror}; nothing has changed"
            raise write_failure(problem, why).raised() from None
        if listener is not None:
            self._successor.hold_listener(listener)
            if old.port == new.port:  # the former address would still get connections, which no gateway accepts
                shut_listener(self._listen_fd)
        self._settings = new
        self._loop.call_last(self._successor.take_over)

    def _listener(self, old: Settings, new: Settings, *, listens: bool = True) -> socket.socket | None:
        """Return a listener at the new address, None if it is the present one; raises a failure if there can be none."""
        if (old.host, old.port) == (new.host, new.port):
            return None
        return bind_listener(new, patience=0.0, present_fd=self._listen_fd, listens=listens)

    def _refuse(self, failure: Failure) -> None:
        if self._is_to_be_applied:
            log.error("configuration not reloaded: it stays as it was", reason=failure.message)
        for caller in self._callers:
            if caller.peer:
                self._calls.reply(caller.peer, caller.number, failure)


def settings_until_next_start(old: Settings, new: Settings) -> Settings:
    """Return the new settings, with the present values of those that only take effect at the next start."""
    kept = {name: getattr(old, name) for name, effects in EFFECTS.items() if SettingEffect.NEXT_START in effects}
    return msgspec.structs.replace(new, **kept)


def _log_fields(change: SettingChange) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "setting": change.setting,
        "old": change.old,
        "new": change.new,
        "effect": ", ".join(change.effects),
    }
    if change.origin:
        fields["origin"] = change.origin
    return fields | ({"models": change.models} if change.models else {})
