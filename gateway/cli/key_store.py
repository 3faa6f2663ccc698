"""Where ``lemonbus keys`` makes its changes: at the running server, or in the file of a state directory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from gateway.api.common.routes import Answered, Asked, Nothing, Route
from gateway.api.operator import keys as server_keys
from gateway.api.operator.keys import AddedKey, ChangedKeys, KeysAnswer, NamedKey
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import FORBIDDEN, UNREACHABLE, USAGE, CommandError
from protocol.config import api_keys
from protocol.config.api_keys import KEYS_FILE, ApiKey, KeyRights, Scope
from protocol.failures import LemonbusError

_PROBED: Final = "/internal/keys-probe"
"""A path without a route: refused without a valid key, otherwise not found, even if a server's supervisor does not answer."""
_NOT_FOUND: Final = 404
_PROBE: Final = "lemonbus-keys-probe"
_PROBE_S: Final = 30.0
"""Lifetime of the key that tests whether a server reads the file, in case this command is killed."""


_ADVICE: Final = {
    UNREACHABLE: (
        " Nothing was changed. For a server that is to start later, name its state directory with --state-dir:"
        " `lemonbus config` shows this user's; the systemd unit's is /var/lib/lemonbus."
    ),
    FORBIDDEN: (
        "\nKeys are managed with a key that has the scope admin. Without one, name the state directory of the server with"
        " --state-dir, as a user who may write there."
    ),
}
"""Exit code of a failed call → what else the operator can do."""


class KeyStore(Protocol):
    """Adds, lists and revokes keys. Each method returns what the route ``/internal/keys`` answers."""

    not_required: str
    """What it means if the answer's ``required`` is false, in a sentence."""
    none_left: str
    """What it means if no key is valid any more."""

    def add(self, rights: KeyRights) -> AddedKey:
        """Add a key, which is in ``key`` of the answer."""

    def listed(self) -> KeysAnswer:
        """Return the keys."""

    def revoke(self, name: str) -> ChangedKeys:
        """Revoke a key."""

    def effect(self, valid: str) -> str:
        """Return when a change takes effect, and whose ``valid`` keys remain, in a sentence or two."""


class ServerKeys:
    """The keys of a running server, which changes them itself."""

    not_required = "Clients need no key."
    none_left = "No key is valid any more"

    def __init__(self, server: ApiClient) -> None:
        """Ask ``server``."""
        self._server = server

    def effect(self, valid: str) -> str:
        """See :class:`KeyStore`."""
        return f"The server at {self._server.url} has applied the change. It now has {valid}, including those in its settings."

    def add(self, rights: KeyRights) -> AddedKey:
        """See :class:`KeyStore`."""
        return self._ask(server_keys.add_key, rights)

    def listed(self) -> KeysAnswer:
        """See :class:`KeyStore`."""
        return self._ask(server_keys.list_keys, Nothing())

    def revoke(self, name: str) -> ChangedKeys:
        """See :class:`KeyStore`."""
        return self._ask(server_keys.revoke_key, NamedKey(name))

    def _ask(self, route: Route[Asked, Answered], request: Asked) -> Answered:
        try:
            return self._server.ask(route, request)
        except CommandError as problem:
            advice = _ADVICE.get(problem.exit_code)
            if advice is None:
                raise
            raise CommandError(f"{problem}{advice}", problem.exit_code, problem.status) from problem


class FileKeys:
    """The keys of a state directory, for a server that does not run, or whose administrator has no key.

    If a server runs at the address, it must be one that reads this file. Otherwise nothing is changed.
    """

    not_required = "The file does not exist: a server of this directory has only the keys of its settings."
    none_left = "The file has no valid key any more"

    def __init__(self, state_dir: Path, server: ApiClient) -> None:
        """``server``: the address at which the server of this directory would answer. Its key is not used."""
        self._path = state_dir.absolute() / KEYS_FILE
        self._url = server.url
        self._running = False

    def effect(self, valid: str) -> str:
        """See :class:`KeyStore`."""
        if self._running:
            when = f"The server at {self._url} reads this file and applies the change now. Keys in its settings are not in this file."
        else:
            when = (
                f"No server is running at {self._url}: a server of this directory applies the change at its next start,"
                " or now if it runs at another address."
            )
        return f"The file has {valid}. {when}"

    def add(self, rights: KeyRights) -> AddedKey:
        """See :class:`KeyStore`."""
        made = api_keys.make_key(rights, time.time())
        first = not self._path.exists() and not self._is_closed()
        if first and Scope.ADMIN not in rights.scopes and self._answers():
            raise CommandError(api_keys.NO_ADMINISTRATOR)
        keys = self._change(lambda keys: api_keys.with_key(keys, made.entry))
        return server_keys.added(made, keys, self._path, first=first)

    def listed(self) -> KeysAnswer:
        """See :class:`KeyStore`."""
        with _problems(self._path):
            keys = api_keys.read_keys(self._path) if self._path.exists() else []
        return KeysAnswer(str(self._path), self._path.exists(), [server_keys.listed(key, "file") for key in keys])

    def revoke(self, name: str) -> ChangedKeys:
        """See :class:`KeyStore`."""
        return server_keys.changed(self._change(lambda keys: api_keys.without_key(keys, name)), name, self._path)

    def _change(self, change: Callable[[list[ApiKey]], list[ApiKey]]) -> list[ApiKey]:
        self._running = self._answers()
        if self._running and not self._path.parent.is_dir():
            raise self._not_read()
        with _problems(self._path), api_keys.locked_keys(self._path) as found:
            changed = change([key for key in found if key.name != _PROBE])
            if self._running and not self._is_read_by_server(found):
                raise self._not_read()
            api_keys.write_keys(self._path, changed)
        return changed

    def _not_read(self) -> CommandError:
        return CommandError(
            f"the server at {self._url} does not read {self._path}: nothing was changed."
            " Name that server's state directory, or the address of the server that uses this one (--url)."
        )

    def _answers(self) -> bool:
        try:
            ApiClient(self._url).call("GET", "/live")
        except CommandError as problem:
            return problem.exit_code != UNREACHABLE
        return True

    def _is_closed(self) -> bool:
        """Return whether a server runs that requires a key: its settings have one, or it had another file before."""
        with contextlib.suppress(CommandError):
            return self._answers() and not self._accepts("")
        return False

    def _is_read_by_server(self, keys: list[ApiKey]) -> bool:
        """Return whether the server accepts a key that is in the file for this moment only, and refuses requests without a key."""
        rights = KeyRights(name=_PROBE, scopes=[Scope.INFERENCE], expires=time.time() + _PROBE_S)
        probe = api_keys.make_key(rights, time.time())
        existed = self._path.exists()
        api_keys.write_keys(self._path, [*(key for key in keys if key.name != _PROBE), probe.entry])
        try:
            return self._accepts(probe.secret) and not self._accepts("")
        except CommandError as problem:
            if existed:
                raise
            seen = "A server that has seen the file meanwhile requires a key from every client until it is restarted."
            raise CommandError(f"{problem}\nNo key was added. {seen}", problem.exit_code) from problem
        finally:
            if existed:
                api_keys.write_keys(self._path, keys)
            else:
                self._path.unlink(missing_ok=True)

    def _accepts(self, key: str) -> bool:
        try:
            ApiClient(self._url, key).call("GET", _PROBED)
        except CommandError as problem:
            if problem.exit_code != FORBIDDEN and problem.status != _NOT_FOUND:
                raise
            return problem.exit_code != FORBIDDEN
        return True


@contextlib.contextmanager
def _problems(path: Path) -> Iterator[None]:
    """Turn what is wrong with the file, or with the change, into the command's error."""
    try:
        yield
    except LemonbusError as problem:
        raise CommandError(str(problem)) from problem
    except ValueError as problem:
        raise CommandError(f"{path.parent}: {problem}", USAGE) from problem
    except OSError as problem:  # a full disk, for example: the file is replaced as a whole or not at all
        raise CommandError(f"{path}: {problem.strerror}; the keys are unchanged") from problem
