"""The keys of a server over several machines, in a file of its state directory. They are made once.

Who can read this file can join the server, so it is readable only for its owner.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from protocol import small_files
from protocol.failures import DECODE_ERRORS, invalid
from protocol.wire.bus_address import ClusterKeys

CLUSTER_KEYS_FILE: Final = "cluster_keys.json"


def read_cluster_keys(state_dir: Path) -> ClusterKeys:
    """Return the keys; raises FileNotFoundError if there are none yet, and ``invalid_request`` if the file is wrong."""
    path = state_dir / CLUSTER_KEYS_FILE
    data = small_files.read_small_file(path)
    try:
        return msgspec.json.decode(data, type=ClusterKeys)
    except DECODE_ERRORS as problem:
        reason = (
            f"{path}: {problem}; remove the file, and new keys are made: then every node and gateway needs a new token"
        )
        raise invalid(reason, "state_dir") from None


def ensure_cluster_keys(state_dir: Path) -> ClusterKeys:
    """Return the keys, which are made if there are none; raises OSError, and as :func:`read_cluster_keys`.

    If two processes make keys at the same time, both get the same ones.
    """
    with contextlib.suppress(FileNotFoundError):
        return read_cluster_keys(state_dir)
    from protocol.wire.curve import new_cluster_keys  # noqa: PLC0415 - most commands need no ZeroMQ

    state_dir.mkdir(parents=True, exist_ok=True)
    path = state_dir / CLUSTER_KEYS_FILE
    data = msgspec.json.format(msgspec.json.encode(new_cluster_keys()), indent=2) + b"\n"
    draft = small_files.private_draft(path, data, lasting=True, owned=True)
    with draft as written, contextlib.suppress(FileExistsError):  # unlike a rename, a link replaces nothing
        os.link(written, path)
    return read_cluster_keys(state_dir)
