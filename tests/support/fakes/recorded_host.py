"""A machine that is only files: its memory, and the control groups of one of its processes, of both versions."""

from __future__ import annotations

from tests.support.fakes.machines import FakeMachine

MEMINFO = {
    "MemTotal": 24684092,
    "MemFree": 18652828,
    "MemAvailable": 23778736,
    "Active(file)": 1903916,
    "Inactive(file)": 2938116,
    "Mlocked": 19824,
    "Mapped": 39668,
    "Shmem": 69776,
    "Hugetlb": 0,
}
"""In KiB, of a virtual machine without control groups of its own."""
V1_MOUNT = "35 31 0:32 {top} /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory"
V2_MOUNT = "29 23 0:26 {top} /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"


class RecordedHost(FakeMachine):
    """A machine with the files about memory."""

    def meminfo(self, **facts: int) -> RecordedHost:
        """Write ``/proc/meminfo``; ``facts`` in KiB."""
        named = {name.replace("_file", "(file)"): number for name, number in facts.items()}
        lines = [f"{name + ':':<16}{number:>8} kB\n" for name, number in {**MEMINFO, **named}.items()]
        self.write("proc/meminfo", "".join(lines) + "HugePages_Total:       0\n")
        return self

    def node(self, number: int, cpus: str, **facts: int) -> None:
        """Add a NUMA node; ``facts`` in KiB. The machine's own figures include them."""
        folder = f"sys/devices/system/node/node{number}"
        named = {name.replace("_file", "(file)"): size for name, size in facts.items()}
        lines = [f"Node {number} {name + ':':<16}{size:>8} kB\n" for name, size in named.items()]
        self.write(f"{folder}/meminfo", "".join(lines) + f"Node {number} HugePages_Total:     0\n")
        self.write(f"{folder}/cpulist", f"{cpus}\n")

    def gpu_node(self, address: str, number: int) -> None:
        """Say as NVIDIA's driver that a GPU's memory is a NUMA node; -1: it is not."""
        status = "online" if number >= 0 else "disabled"
        self.write(f"proc/driver/nvidia/gpus/{address}/numa_status", f"Node:      {number}\nStatus:    {status}\n")

    def process(self, cgroup: str, mounts: str) -> RecordedHost:
        self.write("proc/self/cgroup", cgroup)
        self.write("proc/self/mountinfo", f"23 28 0:21 / /proc rw - proc proc rw\n{mounts}\n")
        return self

    def v2(self, name: str, limit: int | str, used: int, high: int | str = "max", **stat: int) -> None:
        folder = f"sys/fs/cgroup/{name}"
        self.write(f"{folder}/memory.max", f"{limit}\n")
        self.write(f"{folder}/memory.high", f"{high}\n")
        self.write(f"{folder}/memory.current", f"{used}\n")
        self.write(f"{folder}/memory.stat", "".join(f"{key} {value}\n" for key, value in stat.items()))

    def v1(self, name: str, limit: int, used: int, **stat: int) -> None:
        folder = f"sys/fs/cgroup/memory/{name}"
        self.write(f"{folder}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{folder}/memory.usage_in_bytes", f"{used}\n")
        self.write(f"{folder}/memory.stat", "".join(f"{key} {value}\n" for key, value in stat.items()))
