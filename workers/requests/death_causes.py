"""Which requests may have caused the death of an engine that ended by itself. Pure.

An engine compiles a grammar and reads a prompt before the first token, and that is where requests kill engines: those that have had
tokens are suspected only if all have.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.ids import RequestKey


def possible_causes(tokens: Mapping[RequestKey, int]) -> list[RequestKey]:
    """Return the attempts of which it may have died. ``tokens``: attempt that it worked on → the tokens that came of it so far.

    One that is the only possible cause is not tried again; of several, each is tried once more, alone.
    """
    without = [key for key, count in tokens.items() if not count]
    return without or list(tokens)
