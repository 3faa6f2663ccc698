"""Messages about the memory of devices, between the supervisor and the job that reads it from their drivers."""

from __future__ import annotations

import msgspec

from protocol.models.memory import HOST
from protocol.wire.envelope import control_message


class DeviceReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """One device as its driver showed it once. Sizes in bytes."""

    vendor: str
    """``nvidia``, ``amd`` or ``intel``."""
    address: str
    """On the PCI bus, in the form of sysfs: ``0000:c4:00.0``. A part of a divided GPU has the address of the whole GPU."""
    place: str
    """Where its memory is: :data:`protocol.models.memory.HOST` if it uses the machine's own, else its address, or the UUID of a part."""
    uuid: str = ""
    """The vendor's own name of it: ``GPU-…``, ``MIG-…``."""
    name: str = ""
    total: int = 0
    """Memory of its own; 0 if it has none, or if that is unknown."""
    free: int = 0
    used_percent: float | None = None
    """How busy it was in the last moment; None if unknown."""
    processes: dict[int, int] = {}
    """Pid → memory that the process uses on it. Processes that the driver does not show are missing."""
    problem: str = ""
    """Why its memory cannot be read, as a sentence."""

    @property
    def key(self) -> str:
        """What tells it from all others."""
        return self.uuid or self.address

    @property
    def shown(self) -> str:
        """Its name as a place, also if its memory is the host's."""
        return self.address if self.place == HOST else self.place


@control_message
class ReadDevices(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → job: read all devices once."""

    number: int
    """Of this order, rising."""
    nvidia: bool = False
    """Whether NVIDIA's driver is loaded, so that its library is to be asked as well."""
    integrated: list[str] = []
    """Addresses of graphics that are part of a processor."""
    processes: list[int] = []
    """The processes to measure. What their descendants use on devices counts as theirs."""


@control_message
class DevicesRead(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor: the answer."""

    number: int
    devices: list[DeviceReading] = []
    problems: list[str] = []
    """Why a vendor's library shows nothing, as sentences."""
