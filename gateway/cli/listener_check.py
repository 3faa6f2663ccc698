"""Whether an API key may go to the program that listens at a loopback address, which may be another user's while the server is down."""

from __future__ import annotations

import os
import pwd
import socket
import stat
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gateway.cli.exit_codes import FORBIDDEN, CommandError
from protocol.config.settings import Settings
from protocol.runtime.listeners import answering_users

UNIT_DIRECTORY: Final = Path("/run/lemonbus")
"""Runtime directory of ``deploy/systemd/lemonbus.service``, which a user's own settings do not name."""
DYNAMIC_USERS: Final = range(61184, 65520)
"""Users that systemd makes for units with ``DynamicUser``, which have no accounts to log in to."""
_ROOT: Final = 0
_MAPPED: Final = 65534
"""The owner of such a unit's directories as all others see them, from systemd 257 on: only its processes see their user there."""


def check_listener(url: str, settings: Settings) -> None:
    """Raise ``CommandError`` if a program of a user other than the server's gets the requests to a loopback address.

    The server's user is root, the caller, or the owner of the runtime or state directory in these settings or of the
    systemd unit. If the kernel does not say what listens, the check passes.
    """
    parts = urlsplit(url)
    port = parts.port or 80
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
        addresses = {ip_address(str(each[4][0]).partition("%")[0]) for each in found}
        users = set().union(*(answering_users(each, port) for each in addresses if each.is_loopback))
    except (OSError, ValueError):
        return
    if strangers := users - _users_of_server(settings):
        user = min(strangers)
        reason = f"a program of another user ({_name(user)}) listens at {url}, so no API key is sent there"
        raise CommandError(f"{reason}. If it is the server, name its address: --url {url}", FORBIDDEN)


def _users_of_server(settings: Settings) -> set[int]:
    users = {_ROOT, os.geteuid()}
    for folder in (Path(settings.runtime_dir), Path(settings.state_dir), UNIT_DIRECTORY):
        if _is_private(folder.parent):
            try:
                owner = folder.stat().st_uid
                users.update(DYNAMIC_USERS if owner == _MAPPED and folder.is_symlink() else {owner})
            except PermissionError:
                users.update(DYNAMIC_USERS)  # systemd's link to a directory that only root may look into
            except OSError:
                continue
    return users


def _is_private(folder: Path) -> bool:
    """Return whether only root and the caller can create something in a directory."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid in (_ROOT, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
