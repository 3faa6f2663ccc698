"""The supervisor process, from its start to its exit: the first of its server, or one that takes over from another."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from protocol import RELEASE
from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.messages.backend_installs import StartInstall, StartUninstall
from protocol.messages.model_files import StartPull
from protocol.runtime import logs, memory
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import KEEPER_VARIABLE, ProcessContext
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.backends import inventory
from supervisor.bus.sockets import BindError
from supervisor.handlers import metrics, peers, requests, responses, server_state
from supervisor.handlers.backends import BackendJobs
from supervisor.handlers.models import downloads, loading, pull, sampling_defaults
from supervisor.handlers.models.deletion import Deletions
from supervisor.handlers.models.file_headers import FileHeaders
from supervisor.handlers.models.model_details import ModelDescriptions
from supervisor.handlers.models.model_lists import ModelLists
from supervisor.handlers.models.variants import VariantQueries
from supervisor.handlers.system_info import SystemInspection
from supervisor.handlers.upgrade import Upgrades
from supervisor.keeper import channel
from supervisor.lifecycle import startup
from supervisor.lifecycle.keeper_client import KeeperClient
from supervisor.lifecycle.preload import ModelPreload
from supervisor.lifecycle.runtime_check import RuntimeDirectoryCheck
from supervisor.lifecycle.shutdown import GracefulShutdown
from supervisor.lifecycle.startup import StartupSettings
from supervisor.lifecycle.succession import Succession
from supervisor.machine import hardware
from supervisor.models import compatibility
from supervisor.models.options.settings_check import check_settings
from supervisor.processes import abandoned_processes, surviving_processes
from supervisor.processes.listener import bind_listener
from supervisor.recovery.recovering import Recovery
from supervisor.recovery.taken_over_jobs import TakeOver
from supervisor.reload import outdated
from supervisor.reload.reloader import Reloader
from supervisor.runtime.handler_table import merge_handlers
from supervisor.runtime.supervisor import Handler, Supervisor

log = logs.get_logger()


def run(keeper: KeeperClient) -> int:
    """Start the server or take it over, run it until its end, and release what it holds; return the exit code."""
    try:
        given = startup.take_settings(os.environ)
    except msgspec.ValidationError as problem:
        return _refused(keeper, startup.print_line(f"bad settings: {problem}", startup.EXIT_USAGE))
    startup.raise_descriptor_limit()
    try:
        given, runtime, earlier_grace = _runtime_directory(keeper, given)
        listener_fd = _listener(keeper, given.settings)
    except LemonbusError as problem:
        return _refused(keeper, startup.report_failure(given, problem.failure))
    return _serve(keeper, given, runtime, listener_fd, earlier_grace)


def _runtime_directory(keeper: KeeperClient, given: StartupSettings) -> tuple[StartupSettings, RuntimeDirectory, float]:
    """Return the settings, the locked runtime directory, and the grace period of the server that had it before.

    A supervisor may die between any two steps: what the keeper holds is taken over, and only the rest is made.
    """
    lock_fd = keeper.take(channel.LOCK)
    if lock_fd >= 0:
        runtime = RuntimeDirectory.taken_over(Path(given.settings.runtime_dir), lock_fd)
        given = startup.accepted_settings(given, runtime.path)
        return given, runtime, startup.earlier_grace(runtime.path)
    settings = given.settings
    logs.configure("supervisor", settings.log_level, settings.log_format)
    check_settings(settings)
    startup.prepare_state(settings)
    runtime = startup.runtime_directory(settings, int(os.environ[KEEPER_VARIABLE]))
    earlier_grace = startup.earlier_grace(runtime.path)
    startup.write_first_settings(given, runtime.path)
    keeper.hold(channel.LOCK, runtime.lock_fd)
    return given, runtime, earlier_grace


def _listener(keeper: KeeperClient, settings: Settings) -> int:
    listener_fd = keeper.take(channel.LISTENER)
    if listener_fd < 0:
        listener_fd = bind_listener(settings).detach()
        keeper.hold(channel.LISTENER, listener_fd)
    return listener_fd


def _refused(keeper: KeeperClient, exit_code: int) -> int:
    keeper.leaving(exit_code)
    return exit_code


def _serve(
    keeper: KeeperClient, given: StartupSettings, runtime: RuntimeDirectory, listener_fd: int, earlier_grace: float
) -> int:
    settings = given.settings
    logs.configure("supervisor", settings.log_level, settings.log_format)
    loop = Loop()
    process_context = ProcessContext.of_supervisor(runtime.path)
    try:
        supervisor = Supervisor(settings, process_context, loop, listener_fd)
    except BindError as problem:
        if not keeper.predecessors:
            runtime.release()
        return _refused(keeper, startup.report_failure(given, startup.bus_failure(problem, runtime.path)))
    if (fork_server := keeper.take(channel.FORK_SERVER)) >= 0:
        supervisor.processes.use_fork_server(fork_server)
    keeper.on_fork_server = supervisor.processes.use_fork_server
    supervisor.effect_executor.fetch = partial(downloads.fetch_for_scheduler, supervisor)
    closing = GracefulShutdown(supervisor)
    succession = Succession(supervisor, keeper)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.on_signal(number, closing.begin)
    loop.on_signal(signal.SIGHUP, lambda: None)  # the keeper answers a signal to a whole control group
    keeper.on_end = closing.ordered
    keeper.on_exited = supervisor.processes.keeper_reaped
    _log_start(given, process_context, keeper)
    reloader = Reloader(supervisor, succession, given.secrets)
    reloader.on_hangups_done = keeper.reloaded
    keeper.on_reload = partial(supervisor.when_serving, reloader.hangup)
    supervisor.responses.use_journal(keeper.take(channel.RESPONSES), partial(keeper.hold, channel.RESPONSES))
    handlers = _handlers(supervisor)
    if keeper.predecessors:
        Recovery(supervisor, handlers.jobs).begin(surviving_processes.find(process_context))
        supervisor.when_serving(partial(outdated.bring_up_to_date, supervisor))
    upgrades = Upgrades(supervisor, keeper)
    supervisor.open(merge_handlers([handlers.messages, reloader.handlers(), upgrades.handlers()]))
    keeper.listen(loop)
    abandoned_processes.kill_later(loop, process_context, max(settings.grace, earlier_grace))
    RuntimeDirectoryCheck(supervisor, closing.begin_failed)
    preload = ModelPreload(supervisor)
    preload.warn()
    _preload(supervisor, preload, keeper)
    memory.tune_gc()
    loop.run()
    log.info("stopped" if succession.ends_server else "handed over")
    logs.set_sink(None)
    supervisor.state_writer.close()
    supervisor.bus.close()
    if not succession.ends_server:
        keeper.handed_over()
        return 0
    if succession.keeper_lives:
        runtime.release()
    return _refused(keeper, closing.exit_code if succession.keeper_lives else startup.EXIT_FAILED)


def _preload(supervisor: Supervisor, preload: ModelPreload, keeper: KeeperClient) -> None:
    """Load the models for the start, unless an earlier supervisor of this server has already finished this."""

    def finished() -> None:
        with Path(os.devnull).open("rb") as nothing:
            keeper.hold(channel.PRELOADED, nothing.fileno())

    preloaded = keeper.take(channel.PRELOADED)
    if preloaded >= 0:
        os.close(preloaded)
    else:
        preload.on_finished = finished
        supervisor.when_serving(preload.load)


def _log_start(given: StartupSettings, process_context: ProcessContext, keeper: KeeperClient) -> None:
    if keeper.predecessors:
        log.error("the last supervisor has ended", why=keeper.why) if keeper.why else None
        log.info("taking over", version=RELEASE, boot=process_context.boot, predecessors=keeper.predecessors)
    else:
        url, runtime = given.settings.base_url, str(process_context.runtime)
        log.info("starting", version=RELEASE, url=url, boot=process_context.boot, runtime=runtime)
    for warning in given.warnings:
        log.warning("configuration", problem=warning)


class _Handlers(NamedTuple):
    """The handlers of all messages, and what takes over an earlier supervisor's jobs, by the types of their orders."""

    messages: dict[type, Handler]
    jobs: dict[type, TakeOver]


def _handlers(supervisor: Supervisor) -> _Handlers:
    settings = supervisor.settings
    defaults = sampling_defaults.SamplingDefaultsStore(
        Path(settings.state_dir) / sampling_defaults.FILE,
        supervisor.models.problems.append,
        supervisor.state_writer.finish,
    )
    known = inventory.BackendInventory(settings)
    for wrong in known.releases.problems:
        log.warning("backend releases", problem=wrong)
    inspection = SystemInspection(hardware.read_machine(settings.machine_dir), known.recipes)
    supervisor.models.machine = compatibility.capacity_of(inspection.machine)
    installs = BackendJobs(known, lambda: inspection.machine.devices)
    headers = FileHeaders()
    defaults.send_to_new_workers(supervisor)
    messages = merge_handlers(
        [
            peers.HANDLERS,
            requests.HANDLERS,
            downloads.HANDLERS,
            server_state.HANDLERS,
            metrics.HANDLERS,
            pull.HANDLERS,
            responses.HANDLERS,
            Deletions().handlers(),
            loading.HANDLERS,
            defaults.handlers(),
            inspection.handlers(),
            installs.handlers(),
            VariantQueries().handlers(),
            headers.handlers(),
            ModelDescriptions(headers).handlers(),
            ModelLists(headers).handlers(),
        ]
    )
    jobs: dict[type, TakeOver] = {
        StartPull: downloads.take_over,
        StartInstall: installs.take_over,
        StartUninstall: installs.take_over,
    }
    return _Handlers(messages, jobs)
