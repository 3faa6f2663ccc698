"""The user's arguments of a llama-server: how they are checked, and how many slots they ask for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.failures import invalid
from workers.backends.llamacpp.flags import FLAGS, MAX_SLOTS
from workers.backends.user_arguments import check_arguments

OPTION: Final = "llamacpp_args"


def check_llamacpp_args(args: str) -> list[str]:
    """Return the words of ``llamacpp_args``; raises ``invalid_request`` naming a flag that lemonbus sets."""
    words = check_arguments(OPTION, FLAGS, args)
    slots_of(words)
    return words


def slots_of(words: Sequence[str], option: int = 0) -> int:
    """Return how many requests run at once: ``-np`` in the arguments, else the option; raises ``invalid_request``."""
    given = FLAGS.value_of(words, "-np")
    if given is None:
        return option
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:6]) <= MAX_SLOTS:
        raise invalid(f"{OPTION}: -np needs a number from 1 to {MAX_SLOTS}, not {given!r}", OPTION)
    return int(given)
