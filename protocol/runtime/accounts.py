"""The users of this machine: whether this process may start another one as one of them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.failures import invalid

_FOLDERS: Final = frozenset(
    f"XDG_{each}" for each in ("CACHE_HOME", "CONFIG_HOME", "DATA_HOME", "STATE_HOME", "RUNTIME_DIR")
)
"""Variables that name folders of one user."""


class Account(NamedTuple):
    """A user of this machine."""

    user: int
    group: int
    groups: list[int]
    """Its group, and those that it is a member of."""
    name: str
    home: str
    shell: str

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a program that this user shall run, as ``User=`` of systemd sets them.

        The folders of the user who started the server are left out. Without them, programs use those below ``HOME``.
        """
        kept = {name: value for name, value in inherited.items() if name not in _FOLDERS}
        return {**kept, "HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


def account_of(user: str) -> Account:
    """Return the account that a name or number means; raises ``invalid_request`` if there is none."""
    try:
        entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        raise invalid(f"user: this machine has no user {user}", "user") from None
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return Account(entry.pw_uid, entry.pw_gid, groups, entry.pw_name, entry.pw_dir, entry.pw_shell)


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
