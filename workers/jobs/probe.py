"""The job process that inspects the machine: ``python -m workers.jobs.probe``.

It runs the tools of device vendors, lists the Python packages, reports to the supervisor, and ends.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import importlib.metadata
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from protocol.messages.peers import Welcome
from protocol.messages.system_info import MachineProbed, ProgramStatus
from protocol.runtime import logs
from workers.backends.llamacpp import listed_devices
from workers.backends.llamacpp.command_line import has_gpu_node
from workers.jobs import driver_tools
from workers.jobs.job import JobProcess
from workers.jobs.model_programs import PROGRAMS

T = TypeVar("T")
LLAMA_SERVER: Final = "llamacpp:system"
"""The backend of the user's own llama-server."""
_SLOWEST: Final = 3 * driver_tools.SECONDS


def packages() -> list[str]:
    """Return ``NAME==VERSION`` of every package that this Python finds, each name once, sorted."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name and name.lower() not in found:  # the first on the path is the one that is imported
            found[name.lower()] = f"{name}=={distribution.version}"
    return [found[name] for name in sorted(found)]


def llama_devices(program: str) -> list[str]:
    """Return the kinds of devices that a llama-server finds; none if it is not installed, or too old to say."""
    done = driver_tools.run_unchecked(program, listed_devices.ARGUMENT)
    return listed_devices.listed_devices(done.stdout) if done is not None and done.returncode == 0 else []


def probe(llama_server: str = "") -> MachineProbed:
    """Run all tools at once. ``llama_server``: the user's own, if it is to be asked for its devices."""
    probe_errors: list[str] = []

    def answer_or(question: Callable[[], T], nothing: T) -> T:
        try:
            return question()
        except driver_tools.ToolError as problem:
            probe_errors.append(str(problem))
            return nothing

    with ThreadPoolExecutor(4 + 2 * len(PROGRAMS)) as pool:
        nvidia = pool.submit(answer_or, driver_tools.nvidia, [])
        amd = pool.submit(answer_or, driver_tools.amd, [])
        mode = pool.submit(answer_or, driver_tools.npu_power_mode, "")
        nothing: list[str] = []
        devices = pool.submit(answer_or, partial(llama_devices, llama_server), nothing) if llama_server else None
        programs = {
            scheme: (
                pool.submit(answer_or, program.version, ""),
                pool.submit(answer_or, program.problem, ""),
                program.action,
            )
            for scheme, program in PROGRAMS.items()
        }
        package_list = packages()
        return MachineProbed(
            amd.result(_SLOWEST),
            nvidia.result(_SLOWEST),
            mode.result(_SLOWEST),
            package_list,
            programs={
                scheme: ProgramStatus(version.result(_SLOWEST), problem.result(_SLOWEST), action)
                for scheme, (version, problem, action) in programs.items()
                if version.result(_SLOWEST) or problem.result(_SLOWEST)
            },
            program_devices={LLAMA_SERVER: found} if devices and (found := devices.result(_SLOWEST)) else {},
            probe_errors=probe_errors,
        )


def probe_if_supported(llama_server: str) -> MachineProbed | None:
    """Run all tools; None after an unexpected error, which is logged."""
    try:
        return probe(llama_server if has_gpu_node() else "")
    except Exception:  # noqa: BLE001 - after any error the supervisor uses what the kernel reports
        logs.get_logger().error("the machine could not be inspected", detail=traceback.format_exc())
        return None


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    job.carry_out(
        Welcome,
        lambda _welcome: probe_if_supported(job.settings.llama_server),
        lambda found: job.end(found) if found else job.loop.stop(),
    )
    job.run()


if __name__ == "__main__":
    main()
