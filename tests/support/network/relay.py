"""``python -m tests.support.network.relay NODES``: gives each node an interface, and passes packets between them.

The first node is the network namespace that this process was started in; the others are new. Each has a TUN device, whose
other end is here: there is no bridge, and no module of the kernel that delays packets. Orders come on stdin, one a line,
and each is answered by ``ok``:

    link NODE up|down       a node that is down neither sends nor receives
    delay SECONDS           of each packet
    loss SHARE              of all packets, 0 to 1

When stdin ends, because the test has ended or was killed, every process of these namespaces is killed; with the last one
and this one they disappear.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_MTU: Final = 60_000
_NETWORK: Final = "10.91.0"
_DEVICE: Final = "lb0"


def address(node: int) -> str:
    """Return the address of a node; the first one is 1."""
    return f"{_NETWORK}.{node}"


def unshare_network() -> None:
    """Move this thread, and what it starts from now on, into a new network namespace; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def open_device(node: int) -> int:
    """Make the interface of a node in the present namespace; return our end of it. Raises OSError."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    for words in (
        ("link", "set", "lo", "up"),
        ("addr", "add", f"{address(node)}/24", "dev", _DEVICE),
        ("link", "set", _DEVICE, "mtu", str(_MTU), "up"),
    ):
        subprocess.run(["ip", *words], check=True)
    return device


def start_node(node: int) -> tuple[int, int]:
    """Make a namespace; return the pid of a process in it, which ends with this one, and our end of its interface."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
            unshare_network()
            socket.send_fds(theirs, [b"+"], [open_device(node)])
            theirs.recv(1)  # until the relay ends
        finally:
            os._exit(0)
    theirs.close()
    _, (device,), *_ = socket.recv_fds(ours, 1, 1)
    _kept.append(ours)
    return pid, device


_kept: list[socket.socket] = []


class Relay:
    """All links."""

    def __init__(self, devices: dict[int, int]) -> None:
        """``devices``: node → our end of its interface."""
        self._devices = devices
        self._nodes = {device: node for node, device in devices.items()}
        self._down: set[int] = set()
        self._delay = self._loss = 0.0
        self._waiting: list[tuple[float, int, int, bytes]] = []
        """When a packet is due, its number, to which node, and the packet."""
        self._count = 0
        self._random = random.Random(1)
        self._orders = b""

    def run(self) -> None:
        """Pass packets until stdin ends."""
        poll = select.poll()
        for source in (0, *self._nodes):
            poll.register(source, select.POLLIN)
        while True:
            timeout = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            for source, _ in poll.poll(None if timeout is None else timeout * 1000):
                if source:
                    self._take(source)
                elif not self._take_orders():
                    return
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                _, _, node, packet = heapq.heappop(self._waiting)
                self._deliver(node, packet)

    def _take(self, device: int) -> None:
        for _ in range(64):
            try:
                packet = os.read(device, _MTU + 64)
            except BlockingIOError:
                return
            if packet[0] >> 4 != 4 or self._nodes[device] in self._down:
                continue
            node = packet[19]
            if self._loss and self._random.random() < self._loss:
                continue
            if self._delay:
                self._count += 1
                heapq.heappush(self._waiting, (time.monotonic() + self._delay, self._count, node, packet))
            else:
                self._deliver(node, packet)

    def _deliver(self, node: int, packet: bytes) -> None:
        if node in self._devices and node not in self._down:
            with contextlib.suppress(BlockingIOError):  # its queue is full: lost, as in any network
                os.write(self._devices[node], packet)

    def _take_orders(self) -> bool:
        piece = os.read(0, 4096)
        *lines, self._orders = (self._orders + piece).split(b"\n")
        for line in lines:
            match line.decode().split():
                case ["link", node, "down"]:
                    self._down.add(int(node))
                case ["link", node, "up"]:
                    self._down.discard(int(node))
                case ["delay", seconds]:
                    self._delay = float(seconds)
                case ["loss", share]:
                    self._loss = float(share)
                case words:
                    raise ValueError(f"unknown order: {words}")
            os.write(1, b"ok\n")
        return bool(piece)


def namespace(pid: int) -> str:
    """Return the network namespace of a process; raises OSError if it has ended."""
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def inhabitants(namespaces: set[str]) -> list[int]:
    """Return the pids of all processes whose network namespace is one of these."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if namespace(int(entry.name)) in namespaces:
                    found.append(int(entry.name))
            except OSError:  # it has ended
                continue
    return found


def main(nodes: int) -> None:
    """Make the nodes, say so in one line (``ready PID PID …``, of all nodes but the first), and relay."""
    holders: list[int] = []
    devices: dict[int, int] = {}
    try:
        devices[1] = open_device(1)
        for node in range(2, nodes + 1):
            pid, devices[node] = start_node(node)
            holders.append(pid)
        namespaces = {namespace(pid) for pid in (os.getpid(), *holders)}
    except (OSError, subprocess.CalledProcessError, ValueError) as problem:
        print(f"impossible {problem}", flush=True)
        return
    print("ready", *holders, flush=True)
    Relay(devices).run()
    while left := [pid for pid in inhabitants(namespaces) if pid != os.getpid()]:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for pid in holders:
            os.waitpid(pid, os.WNOHANG) if pid in left else None
        time.sleep(0.01)


if __name__ == "__main__":
    main(int(sys.argv[1]))
