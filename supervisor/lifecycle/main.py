"""The supervisor process, from its start to its exit: the first of its server, or one that takes over from another."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import msgspec

from protocol import RELEASE
from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.runtime import descriptors, logs, memory
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import KEEPER_VARIABLE, ProcessContext
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.bus.sockets import BindError
from supervisor.handlers.upgrade import Upgrades
from supervisor.keeper import channel
from supervisor.lifecycle import startup
from supervisor.lifecycle.components import Components
from supervisor.lifecycle.keeper_client import KeeperClient
from supervisor.lifecycle.startup import StartupSettings
from supervisor.lifecycle.succession import Succession, SuccessionState
from supervisor.lifecycle.supervisor import Supervisor
from supervisor.models.options.settings_check import check_settings, limit_warnings
from supervisor.processes import abandoned_processes, engine_groups, keeper_children
from supervisor.processes.listener import bind_listener
from supervisor.reload.reloader import Reloader
from supervisor.runtime.handler_table import merge_handlers

log = logs.get_logger()


def run(keeper: KeeperClient) -> int:
    """Start the server or take it over, run it until its end, and release what it holds; return the exit code."""
    try:
        given = startup.take_settings(os.environ)
    except msgspec.ValidationError as problem:
        return _refused(keeper, startup.print_line(f"bad settings: {problem}", startup.EXIT_USAGE))
    descriptors.raise_limit()
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
        if (state_lock := keeper.take(channel.STATE_LOCK)) >= 0:
            os.close(state_lock)  # the keeper has it
        return given, runtime, startup.earlier_grace(runtime.path)
    settings = given.settings
    logs.configure("supervisor", settings.log_level, settings.log_format)
    check_settings(settings)
    if settings.placement == "ray":
        from protocol.config.ray_address import with_cluster_address  # noqa: PLC0415 - only servers with a cluster need it

        settings = with_cluster_address(settings, os.environ)
        given = given._replace(settings=settings)
    startup.prepare_state(settings)
    keeper_pid = int(os.environ[KEEPER_VARIABLE])
    runtime = startup.runtime_directory(settings, keeper_pid)
    _lock_state(keeper, settings, keeper_pid)
    earlier_grace = startup.earlier_grace(runtime.path)
    startup.write_first_settings(given, runtime.path)
    keeper.hold(channel.LOCK, runtime.lock_fd)
    return given, runtime, earlier_grace


def _lock_state(keeper: KeeperClient, settings: Settings, keeper_pid: int) -> None:
    """Let the keeper hold the lock of the state directory, unless it does already."""
    if (state_lock := keeper.take(channel.STATE_LOCK)) < 0:
        state_lock = startup.lock_state(settings, keeper_pid)
        if state_lock < 0:
            return
        keeper.hold(channel.STATE_LOCK, state_lock)
    os.close(state_lock)


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
    # The order counts: every handler is set before the bus and the keeper are read, and what an earlier supervisor left
    # is adopted before anything is started.
    settings = given.settings
    logs.configure("supervisor", settings.log_level, settings.log_format)
    loop = Loop()
    process_context = _process_context(settings, runtime)
    try:
        supervisor = Supervisor(settings, process_context, loop, listener_fd)
    except (BindError, LemonbusError) as problem:
        if not keeper.predecessors:
            runtime.release()
        return _refused(keeper, startup.report_failure(given, startup.bus_failure(problem, settings)))
    components, shutdown = supervisor.components, supervisor.shutdown
    if (fork_server := keeper.take(channel.FORK_SERVER)) >= 0:
        components.processes.use_fork_server(fork_server)
    keeper.on_fork_server = components.processes.use_fork_server
    view = components.scheduler.view
    succession = Succession(
        settings=settings,
        loop=loop,
        peers=components.peers,
        gateway=components.gateway,
        barrier=components.barrier,
        view=view,
        messages=components.messages,
        keeper=keeper,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.on_signal(number, shutdown.begin)
    loop.on_signal(signal.SIGHUP, lambda: None)  # the keeper answers a signal to a whole control group
    keeper.on_end = shutdown.ordered
    keeper.on_exited = components.processes.keeper_reaped
    _log_start(given, process_context, keeper)
    reloader = Reloader(
        settings=settings,
        process_context=process_context,
        loop=loop,
        listen_fd=listener_fd,
        processes=components.processes,
        models=components.models,
        view=view,
        calls=components.calls,
        errors=components.errors,
        successor=succession,
        secrets=given.secrets,
    )
    reloader.on_hangups_done = keeper.reloaded
    keeper.on_reload = partial(components.messages.when_serving, reloader.hangup)
    _use_held_memory(components, keeper)
    if keeper.predecessors or components.resume_nodes():
        supervisor.take_over(keeper_children.find_survivors(process_context))
    upgrades = Upgrades(loop, keeper, components.gateway, view, components.calls)
    components.messages.add(merge_handlers([reloader.handlers(), upgrades.handlers()]))
    supervisor.open()
    keeper.listen(loop)
    abandoned_processes.kill_later(loop, process_context, max(settings.grace, earlier_grace))
    supervisor.watch_runtime_directory()
    engine_groups.allow(loop)
    supervisor.preload.warn()
    _warn_of_limits(settings)
    _preload(supervisor, keeper)
    memory.tune_gc()
    loop.run()
    log.info("handed over" if succession.state is SuccessionState.HANDING_OVER else "stopped")
    logs.set_sink(None)
    components.close(server_ends=succession.state is SuccessionState.RUNNING)
    match succession.state:
        case SuccessionState.HANDING_OVER:
            keeper.handed_over()
            return 0
        case SuccessionState.KEEPER_GONE:
            return startup.EXIT_FAILED
        case SuccessionState.RUNNING:
            runtime.release()
            return _refused(keeper, shutdown.exit_code)


def _process_context(settings: Settings, runtime: RuntimeDirectory) -> ProcessContext:
    """Return what the children of this supervisor are told; the boot id is that of a run which goes on for other nodes."""
    context = ProcessContext.of_supervisor(runtime.path)
    if not settings.cluster_address:
        return context
    from supervisor.persistence import cluster_run  # noqa: PLC0415 - only servers with a cluster need it

    run = cluster_run.read(Path(settings.state_dir))
    return context if run is None else context._replace(boot=run.boot)


def _use_held_memory(components: Components, keeper: KeeperClient) -> None:
    """Go on from what earlier supervisors of this server have left with the keeper."""
    components.record.keep(keeper.take(channel.SERVER_RECORD), partial(keeper.hold, channel.SERVER_RECORD))
    components.responses.use_journal(keeper.take(channel.RESPONSES), partial(keeper.hold, channel.RESPONSES))
    components.accounting.use_journal(keeper.take(channel.COUNTS), partial(keeper.hold, channel.COUNTS))
    components.usage_writer.start()
    for node in components.record.drained_nodes:
        components.scheduler.node_drains(node, True)


def _warn_of_limits(settings: Settings) -> None:
    """Say which limits of engines cannot be enforced by this server."""
    for each in limit_warnings(settings):
        log.warning("limit of engines cannot be enforced", setting=each.setting, reason=each.text)


def _preload(supervisor: Supervisor, keeper: KeeperClient) -> None:
    """Load the models for the start, unless an earlier supervisor of this server has already finished this."""

    def finished() -> None:
        with Path(os.devnull).open("rb") as nothing:
            keeper.hold(channel.PRELOADED, nothing.fileno())
        supervisor.readiness.started()

    preloaded = keeper.take(channel.PRELOADED)
    if preloaded >= 0:
        os.close(preloaded)
        supervisor.components.record.ready = True
    else:
        supervisor.preload.on_finished = finished
        supervisor.components.messages.when_serving(supervisor.preload.load)


def _log_start(given: StartupSettings, process_context: ProcessContext, keeper: KeeperClient) -> None:
    if keeper.predecessors:
        log.error("the last supervisor has ended", reason=keeper.why) if keeper.why else None
        log.info("taking over", version=RELEASE, boot=process_context.boot, predecessors=keeper.predecessors)
    else:
        url, runtime = given.settings.base_url, str(process_context.runtime)
        log.info("starting", version=RELEASE, url=url, boot=process_context.boot, runtime=runtime)
    for warning in given.warnings:
        log.warning("the configuration has a problem", reason=warning)
