"""Which requests may have caused the death of an engine that ended by itself. Pure.

An engine compiles a grammar and reads a prompt before the first token, and this is where requests kill engines. So
requests that have had tokens are suspected only if all have.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.ids import RequestKey


def possible_causes(tokens: Mapping[RequestKey, int]) -> list[RequestKey]:
    """Return the attempts that it may have died of. ``tokens``: attempt in progress → its tokens so far.

    If only one is possible, it is not tried again. If several are, each is tried once more, alone.
    """
    without = [key for key, count in tokens.items() if not count]
    return without or list(tokens)
