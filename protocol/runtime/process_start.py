"""What a process does before it imports its modules, so that it starts with less processor time."""

from __future__ import annotations

from protocol.runtime import memory
from protocol.runtime.deferred_module import importing_without


def begin_imports() -> None:
    """Call first in a process of ours. If it lives for more than a moment, call ``memory.tune_gc`` when all is imported.

    msgspec is imported here, before other modules import it: it prefers `typing_extensions` to `typing`, has no need
    of it in the versions of Python that we support, and that module and what it imports cost 7 ms.
    """
    memory.pause_gc()
    with importing_without("inspect", absent=["typing_extensions"]):
        import msgspec  # noqa: F401, PLC0415 - see above
