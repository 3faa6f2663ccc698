"""The machine: its processors, graphics cards and neural processors, and the messages about them."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from protocol.messages.calls import repeated_call
from protocol.messages.node_reports import NodeReport
from protocol.models.devices import Device
from protocol.models.memory import Capacity
from protocol.wire.envelope import control_message


class Cpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """The processor. ``family``: its architecture, ``x86_64``."""

    name: str
    cores: int
    threads: int
    family: str


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """One graphics card. Unknown values are empty or 0."""

    address: str
    """On the PCI bus, ``0000:c5:00.0``."""
    name: str = ""
    family: str = ""
    """Its architecture as compilers name it: ``gfx1150``, ``sm_90``."""
    memory: int = 0
    """Bytes of its memory; of an integrated one, those reserved for it."""
    driver: str = ""
    driver_version: str = ""
    integrated: bool = False

    @property
    def available(self) -> bool:
        """Whether it has a driver that lets this machine's programs use it."""
        return self.driver not in ("", "vfio-pci", "pci-stub", "xen-pciback")


class Npu(msgspec.Struct, frozen=True, omit_defaults=True):
    """A neural processor."""

    name: str
    family: str = ""
    """``XDNA`` or ``XDNA2``."""
    driver: str = ""
    driver_version: str = ""
    power_mode: str = ""

    @property
    def available(self) -> bool:
        """Whether it has its driver."""
        return self.driver == "amdxdna"


class MachineInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole machine."""

    system: str
    """The operating system's name and version."""
    memory: int
    """Bytes."""
    cpu: Cpu
    amd_gpus: list[Gpu] = []
    nvidia_gpus: list[Gpu] = []
    npu: Npu | None = None
    more: dict[str, str] = {}
    """For diagnosis: ``kernel``, ``board``, ``bios``…"""

    @property
    def devices(self) -> list[Device]:
        """The kinds of devices here that a backend can compute on."""
        available = {
            Device.CPU: True,
            Device.AMD_GPU: any(gpu.available for gpu in self.amd_gpus),
            Device.NVIDIA_GPU: any(gpu.available for gpu in self.nvidia_gpus),
            Device.AMD_NPU: self.npu is not None and self.npu.available,
        }
        return [device for device, usable in available.items() if usable]


class BackendStatus(msgspec.Struct, frozen=True):
    """One backend of a recipe: whether it is installed, or can be."""

    devices: list[str]
    """The kinds of devices of this machine that it can use."""
    state: str
    """``unsupported``, ``installable``, ``update_required`` or ``installed``."""
    message: str = ""
    action: str = ""
    """What to do about it: a command, or a web page."""
    version: str | UnsetType = UNSET


class RecipeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The backends of a recipe."""

    default_backend: str | UnsetType = UNSET
    backends: dict[str, BackendStatus]
    """By their names; ``default`` is the preferred one."""


@repeated_call
class GetSystemInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """→ :class:`SystemInfo`; ``verbose``: with facts that take longer to find out."""

    number: int
    verbose: bool = False


class SystemInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The machine, and what it can run."""

    machine: MachineInfo
    recipes: dict[str, RecipeStatus] = {}
    packages: list[str] | None = None
    """``NAME==VERSION`` of all installed Python packages; None if they were not listed."""
    memory: list[Capacity] = []
    """The memory of the host, and of each device that has its own, now."""


@repeated_call
class GetSystemStats(msgspec.Struct, frozen=True):
    """→ :class:`MachineUsage`, which may take a quarter of a second."""

    number: int


class MachineUsage(msgspec.Struct, frozen=True, omit_defaults=True):
    """How busy the machine of the supervisor is now; None: it does not tell."""

    cpu_percent: float | None
    """Of all processors together."""
    memory_used: int
    """Bytes of the machine's memory, whatever control groups allow."""
    gpu_percent: float | None
    """Of the busiest device."""
    device_memory_used: int | None
    """Bytes on all devices that have memory of their own."""
    memory: list[Capacity]
    nodes: list[NodeReport] = []
    """The machines of a server that has several, with their memory as it was read last."""


class ProgramStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a recipe's own program reports."""

    version: str = ""
    problem: str = ""
    """Why it cannot run models here, as a sentence; empty if it can, or if that is unknown."""
    action: str = ""
    """A command that explains more."""


@control_message
class MachineProbed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor: what the vendors' tools report about their devices, and the Python packages."""

    amd_gpus: list[Gpu] = []
    nvidia_gpus: list[Gpu] = []
    npu_power_mode: str = ""
    packages: list[str] = []
    programs: dict[str, ProgramStatus] = {}
    """Checkpoint scheme → the program that keeps those models."""
    program_devices: dict[str, list[str]] = {}
    """``RECIPE:BACKEND`` of a user's own program → the kinds of devices that it finds; only those that say so."""
    probe_errors: list[str] = []
    """For the log: the tools that did not answer."""
