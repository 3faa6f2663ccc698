"""How the command line passes the resolved settings to the server's processes: in the environment, or in an anonymous file.

A variable holds at most 128 KiB, and the stack's limit bounds all of them together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Final

import msgspec

VARIABLES: Final = ("LEMONBUS_SETTINGS", "LEMONBUS_ORIGINS", "LEMONBUS_WARNINGS")
FILE_VARIABLE: Final = "LEMONBUS_SETTINGS_FD"
MAX_VARIABLE_BYTES: Final = 64 * 1024
"""All three variables together; the kernel takes 128 KiB each."""
_READ_BYTES: Final = 1024 * 1024


def export(values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables, named in :data:`VARIABLES`, that pass these values on.

    Large values are written to a file, which stays open for this process and those that it starts by ``exec``.
    """
    if sum(map(len, map(str.encode, values.values()))) <= MAX_VARIABLE_BYTES:
        return dict(values)
    file = os.memfd_create("lemonbus-settings")
    os.set_inheritable(file, True)
    with os.fdopen(os.dup(file), "wb") as writer:
        writer.write(msgspec.json.encode(values))
    return {FILE_VARIABLE: str(file)}


def take(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Remove the variables from the environment and return their values. The file is closed in this process.

    Raises ``msgspec.MsgspecError`` and OSError for variables that :func:`export` did not make.
    """
    file = environment.pop(FILE_VARIABLE, "")
    values = {name: environment.pop(name) for name in VARIABLES if name in environment}
    return values | (_read(int(file)) if file else {})


def _read(file: int) -> dict[str, str]:
    try:
        data = bytearray()
        # Always from the beginning: the last process stopped reading at the end.
        while piece := os.pread(file, _READ_BYTES, len(data)):
            data += piece
    finally:
        os.close(file)
    return msgspec.json.decode(data, type=dict[str, str])
