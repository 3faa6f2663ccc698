"""The users of this machine: whether this process may start another one as one of them."""

from __future__ import annotations

import os
import pwd
from typing import NamedTuple

from protocol.failures import invalid


class Account(NamedTuple):
    """A user of this machine."""

    user: int
    group: int
    groups: list[int]


def account_of(user: str) -> Account:
    """Return the account that a name or number means; raises ``invalid_request`` if there is none."""
    try:
        entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        raise invalid(f"user: this machine has no user {user}", "user") from None
    return Account(entry.pw_uid, entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid))


def check_user(user: str) -> Account | None:
    """Return the account to change to, None if this is not needed; raises ``invalid_request`` if it is impossible."""
    if not user or user == str(os.geteuid()):
        return None
    account = account_of(user)
    if account.user == os.geteuid():
        return None
    if os.geteuid():
        raise invalid(
            f"user: only root can start an engine as another user, and the server runs as {_own_name()}", "user"
        )
    return account


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
