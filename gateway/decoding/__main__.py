"""The decoder: reads orders from the socket that is its standard input, and answers each.

It ends with its gateway, whose end it sees on that socket; after a minute without an order; after a large image; and
when an order takes too long.
"""

from __future__ import annotations

import binascii
import os
import resource
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Final

from gateway.decoding import decoder_process as wire
from gateway.decoding.audio_duration import RecordingError, measure_recording
from gateway.decoding.base64_text import from_base64
from gateway.decoding.images import ImageError, decode_image
from gateway.decoding.limits import DECODER_MEMORY

IDLE_S: Final = 60.0
MAX_RESIDENT_KIB: Final = 128 * 1024


def answer(kind: int, budget: wire.Budget, data: bytes, *, coded: bool = False) -> tuple[int, wire.Decoded]:
    """Return the answer to an order; ``coded``: the file is in base64, and so is to be what comes of it."""
    try:
        if coded:
            data = from_base64(data)
        if kind == wire.RECORDING:
            decoded = wire.Decoded(*measure_recording(data, budget.cost))
        else:
            decoded = wire.Decoded(*decode_image(data, int(budget.cost), alpha=kind == wire.IMAGE_WITH_ALPHA))
    except (ImageError, RecordingError) as refusal:
        return _refused(str(refusal))
    except binascii.Error:
        return _refused("it is not in base64")
    except MemoryError:
        return _refused("decoding it takes too much memory")
    if coded:
        decoded = decoded._replace(data=binascii.b2a_base64(decoded.data, newline=False))
    if len(decoded.data) > budget.size:
        return _refused(f"encoded again, it has {len(decoded.data)} bytes; its request may have {budget.size} more")
    return wire.DONE, decoded


def _refused(reason: str) -> tuple[int, wire.Decoded]:
    return wire.REFUSED, wire.Decoded("", reason.encode(), 0)


def keeps_much_memory() -> bool:
    """Return whether this process may have kept what a large image took; also if that is unknown.

    ``getrusage`` counts the peak of the process that started it as well. Raises nothing: the order is answered already, and an
    exit code other than 0 would be reported to the next one.
    """
    try:
        status = Path("/proc/self/status").read_bytes()
        return int(status.partition(b"VmHWM:")[2].split(maxsplit=1)[0]) > MAX_RESIDENT_KIB
    except (OSError, ValueError, IndexError, MemoryError):
        return True  # not every kernel tells; a new process certainly has little


def main() -> None:
    """Answer until there are no more orders."""
    os.chdir("/")
    resource.setrlimit(resource.RLIMIT_AS, (DECODER_MEMORY, DECODER_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=sys.stdin.fileno()) as gateway:
        gateway.settimeout(IDLE_S)
        while True:
            kind, coded, cost, most, seconds, size = wire.ORDER.unpack(wire.receive(gateway, wire.ORDER.size))
            data = wire.receive(gateway, size)
            # After this much computing the kernel ends the process, whichever library is at work.
            signal.setitimer(signal.ITIMER_PROF, seconds)
            status, decoded = answer(kind, wire.Budget(cost, most), data, coded=coded)
            left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
            gateway.sendall(wire.answer(status, decoded, seconds - left))
            if keeps_much_memory():
                return  # the allocator would keep what a large image took
            del data, decoded


if __name__ == "__main__":
    try:
        main()
    except (OSError, EOFError, struct.error):
        sys.exit(0)
