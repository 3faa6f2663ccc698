"""The user's arguments of flm, which accepts abbreviated flags: they are checked here. Pure."""

from __future__ import annotations

from typing import Final

from protocol.failures import invalid
from workers.backends.flag_table import name_of
from workers.backends.flm.flags import FLAGS
from workers.backends.user_arguments import split_args

OPTION: Final = "flm_args"


def check_flm_args(args: str) -> list[str]:
    """Return the words of ``flm_args``; raises ``invalid_request`` naming a flag that lemonbus sets.

    flm accepts a prefix of a flag's name, and a value directly after a one-letter flag.
    """
    words = split_args(OPTION, args)
    if words and not words[0].startswith("-"):
        raise invalid(f"{OPTION} must begin with a flag, not {words[0]!r}: lemonbus names the model", OPTION)
    for word in words:
        flag = name_of(word)
        ours = [each for each in FLAGS.forbidden if _abbreviates(flag, each)]
        if ours:
            raise invalid(f"{OPTION} must not contain {flag}: lemonbus sets {ours[0]}", OPTION)
    return words


def _abbreviates(flag: str, forbidden: str) -> bool:
    if flag.startswith("--"):
        return forbidden.startswith(flag)
    return flag.startswith("-") and flag[:2] == forbidden
