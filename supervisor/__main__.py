"""``python -m supervisor``: one server, from its lock to the end of its last child process.

``lemonbus serve`` resolves the settings and hands them over, as ``supervisor/runtime/startup.py`` says.  Exits 0 after an
orderly shutdown, 1 when the server cannot start or cannot go on, 2 for bad settings; with one line that says why.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import msgspec

from protocol import RELEASE, ids
from protocol.config.settings import write_settings
from protocol.failures import LemonbusError
from protocol.runtime import logs, memory
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.backends import inventory
from supervisor.handlers import admin, downloads, loading, metrics, peers, pull, requests, responses, sampling_defaults
from supervisor.handlers.backends import BackendJobs
from supervisor.handlers.deletion import Deletions
from supervisor.handlers.model_details import ModelDescriptions
from supervisor.handlers.system_info import SystemInspection
from supervisor.handlers.variants import VariantQueries
from supervisor.machine import hardware
from supervisor.models import compatibility, options
from supervisor.processes import abandoned_processes
from supervisor.processes.listener import bind_listener
from supervisor.runtime import startup
from supervisor.runtime.handler_table import merge_handlers
from supervisor.runtime.hangup import HangupHandler
from supervisor.runtime.preload import ModelPreload
from supervisor.runtime.runtime_check import RuntimeDirectoryCheck
from supervisor.runtime.shutdown import GracefulShutdown
from supervisor.runtime.supervisor import Supervisor

log = logs.get_logger()


def main() -> int:
    """Start the server, run it until its shutdown, and release what it holds."""
    try:
        given = startup.take_settings(os.environ)
    except msgspec.ValidationError as problem:
        return startup.print_line(f"bad settings: {problem}", startup.EXIT_USAGE)
    settings = given.settings
    startup.raise_descriptor_limit()
    logs.configure("supervisor", settings.log_level, settings.log_format)
    try:
        options.check_settings(settings)
        startup.prepare_state(settings)
        runtime = startup.runtime_directory(settings)
        try:
            listener = bind_listener(settings)
        except LemonbusError:
            runtime.release()
            raise
    except LemonbusError as problem:
        return startup.report_failure(given, problem.failure)
    earlier_grace = startup.earlier_grace(runtime.path)
    write_settings(settings, runtime.path)
    loop = Loop()
    process_context = ProcessContext(runtime.path, ids.boot_id(), os.getpid(), os.getpid())
    supervisor = Supervisor(settings, process_context, loop, listener.fileno())
    supervisor.effect_executor.fetch = partial(downloads.fetch_for_scheduler, supervisor)
    closing = GracefulShutdown(supervisor)
    loop.on_signal(signal.SIGTERM, closing.begin)
    loop.on_signal(signal.SIGINT, closing.begin)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup means it
        loop.on_signal(signal.SIGHUP, HangupHandler(closing.begin).handle)
    log.info("starting", version=RELEASE, url=settings.base_url, boot=process_context.boot, runtime=str(runtime.path))
    for warning in given.warnings:
        log.warning("configuration", problem=warning)
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
    defaults.send_to_new_workers(supervisor)
    supervisor.open(
        merge_handlers(
            [
                peers.HANDLERS,
                requests.HANDLERS,
                downloads.HANDLERS,
                admin.HANDLERS,
                metrics.HANDLERS,
                pull.HANDLERS,
                responses.HANDLERS,
                Deletions().handlers(),
                loading.HANDLERS,
                defaults.handlers(),
                inspection.handlers(),
                installs.handlers(),
                VariantQueries().handlers(),
                ModelDescriptions().handlers(),
            ]
        )
    )
    abandoned_processes.kill_later(loop, process_context, max(settings.grace, earlier_grace))
    RuntimeDirectoryCheck(supervisor, closing.begin_failed)
    preload = ModelPreload(supervisor)
    preload.warn()
    preload.load()
    memory.tune_gc()
    loop.run()
    log.info("stopped")
    logs.set_sink(None)
    supervisor.state_writer.close()
    supervisor.bus.close()
    runtime.release()
    return closing.exit_code


if __name__ == "__main__":
    sys.exit(main())
