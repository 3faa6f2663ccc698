"""Where ``lemonbus keys`` makes its changes: at the running server, or in the file of a state directory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import FORBIDDEN, UNREACHABLE, USAGE, CommandError
from protocol.config import api_keys
from protocol.config.api_keys import KEYS_FILE, ApiKey, KeyRights, Scope
from protocol.failures import LemonbusError

_PATH: Final = "/internal/keys"
_PROBED: Final = "/internal/keys-probe"
"""A path without a route: refused without a valid key, and else not found, also while a server's supervisor does not answer."""
_NOT_FOUND: Final = 404
_PROBE: Final = "lemonbus-keys-probe"
_PROBE_S: Final = 30.0
"""How long the key is valid that shows whether a server reads the file, should this command be killed."""


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

    def add(self, rights: KeyRights) -> dict[str, Any]:
        """Add a key, which is ``key`` of the answer."""

    def listed(self) -> dict[str, Any]:
        """Return the keys."""

    def revoke(self, name: str) -> dict[str, Any]:
        """Revoke a key."""

    def effect(self, valid: str) -> str:
        """Return since when a change holds, and whose ``valid`` keys there are then, in a sentence or two."""


class ServerKeys:
    """The keys of a running server, which changes them itself."""

    def __init__(self, server: ApiClient) -> None:
        """Ask ``server``."""
        self._server = server

    def effect(self, valid: str) -> str:
        """See :class:`KeyStore`."""
        return f"The server at {self._server.url} applies this now. It has {valid}, those of its settings included."

    def add(self, rights: KeyRights) -> dict[str, Any]:
        """See :class:`KeyStore`."""
        return self._call("POST", _PATH, msgspec.to_builtins(rights))

    def listed(self) -> dict[str, Any]:
        """See :class:`KeyStore`."""
        return self._call("GET", _PATH)

    def revoke(self, name: str) -> dict[str, Any]:
        """See :class:`KeyStore`."""
        return self._call("DELETE", f"{_PATH}/{quote(name, safe='')}")

    def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._server.call(method, path, body)
        except CommandError as problem:
            advice = _ADVICE.get(problem.exit_code)
            if advice is None:
                raise
            raise CommandError(f"{problem}{advice}", problem.exit_code, problem.status) from problem
        return answer


class FileKeys:
    """The keys of a state directory, for a server that does not run, or whose administrator has no key.

    If a server runs at the address, it must be one that reads this file: else nothing is changed.
    """

    def __init__(self, state_dir: Path, server: ApiClient) -> None:
        """``server``: the address at which the server of this directory would answer; its key is not used."""
        self._path = state_dir.absolute() / KEYS_FILE
        self._url = server.url
        self._running = False

    def effect(self, valid: str) -> str:
        """See :class:`KeyStore`."""
        if self._running:
            when = (
                f"The server at {self._url} reads this file, and applies this now. Keys of its settings are not in it."
            )
        else:
            when = (
                f"No server is running at {self._url}: this holds from the next start of a server with this directory."
            )
        return f"The file has {valid}. {when}"

    def add(self, rights: KeyRights) -> dict[str, Any]:
        """See :class:`KeyStore`."""
        made = api_keys.make_key(rights, time.time())
        first = not self._path.exists() and not self._is_closed()
        if first and Scope.ADMIN not in rights.scopes and self._answers():
            raise CommandError(api_keys.NO_ADMINISTRATOR)
        keys = self._change(lambda keys: api_keys.with_key(keys, made.entry))
        return {**self._result(keys), "key": made.secret, "first": first}

    def listed(self) -> dict[str, Any]:
        """See :class:`KeyStore`."""
        with _problems(self._path):
            keys = api_keys.read_keys(self._path) if self._path.exists() else []
        return {
            "file": str(self._path),
            "required": self._path.exists(),
            "keys": [{**msgspec.structs.asdict(key), "origin": "file"} for key in keys],
        }

    def revoke(self, name: str) -> dict[str, Any]:
        """See :class:`KeyStore`."""
        return self._result(self._change(lambda keys: api_keys.without_key(keys, name)))

    def _result(self, keys: list[ApiKey]) -> dict[str, Any]:
        now = time.time()
        return {
            "file": str(self._path),
            "valid_keys": sum(not key.expired(now) for key in keys),
            "valid_admin_keys": len(api_keys.administrators(keys, now)),
        }

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
            " Name its own state directory, or the address of the server of this one (--url)."
        )

    def _answers(self) -> bool:
        try:
            ApiClient(self._url).call("GET", "/live")
        except CommandError as problem:
            return problem.exit_code != UNREACHABLE
        return True

    def _is_closed(self) -> bool:
        """Return whether a server runs that wants a key: its settings have one, or it had another file before."""
        with contextlib.suppress(CommandError):
            return self._answers() and not self._accepts("")
        return False

    def _is_read_by_server(self, keys: list[ApiKey]) -> bool:
        """Return whether the server accepts a key that is in the file for this moment, and no request without a key."""
        rights = KeyRights(name=_PROBE, scopes=[Scope.INFERENCE], expires=time.time() + _PROBE_S)
        probe = api_keys.make_key(rights, time.time())
        existed = self._path.exists()
        api_keys.write_keys(self._path, [*(key for key in keys if key.name != _PROBE), probe.entry])
        try:
            return self._accepts(probe.secret) and not self._accepts("")
        except CommandError as problem:
            if existed:
                raise
            seen = "A server that has seen the file meanwhile wants a key from every client until it is started again."
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
    """Make what is wrong with the file, or with the change, the command's error."""
    try:
        yield
    except LemonbusError as problem:
        raise CommandError(str(problem)) from problem
    except ValueError as problem:
        raise CommandError(f"{path.parent}: {problem}", USAGE) from problem
    except OSError as problem:  # a full disk, for example: the file is replaced as a whole, or not at all
        raise CommandError(f"{path}: {problem.strerror}; the keys are as they were") from problem
