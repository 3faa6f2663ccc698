"""API keys: what a key may do and use, and the file of the state directory that lists them.

``/internal/keys`` changes the file, or ``lemonbus keys`` where no server runs. Every gateway process looks at the file
before each request, and reads it again if it has changed.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import fnmatch
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from protocol import small_files
from protocol.config.settings import KEY_DIGEST, SECTIONS, Settings
from protocol.failures import DECODE_ERRORS, Code, Failure, invalid, printable
from protocol.times import UnixTime

KEYS_FILE: Final = "keys.json"
KEY_PREFIX: Final = "lb-"
"""Prefix of every key that is made here, so that people and scanners for leaked secrets recognize one."""
KEY_NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z"
KEY_VARIABLES: Final = {
    "api_key": ("LEMONBUS_API_KEY", "LEMONADE_API_KEY"),
    "admin_api_key": ("LEMONBUS_ADMIN_API_KEY", "LEMONADE_ADMIN_API_KEY"),
}
"""Settings that are keys → the environment variables that they are read from. Children do not inherit these variables.

A key in the file may not be named after one of these settings.
"""
_KEY_BYTES: Final = 32
_LOCK_TIMEOUT_S: Final = 5.0
_LOCK_PAUSE_S: Final = 0.02

Limit = Annotated[int, Meta(ge=0, le=10**12)]
"""0: no limit."""


class Scope(enum.StrEnum):
    """What a key may be used for."""

    INFERENCE = "inference"
    """Requests to models, and reading what the server has and does."""
    ADMIN = "admin"
    """Everything: it includes the other scopes."""
    LOGS = "logs"
    METRICS = "metrics"


class KeyRights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The name, rights and limits of a key. An unknown field is an error, because it may be a limit."""

    name: Annotated[str, Meta(pattern=KEY_NAME_PATTERN)]
    """Unique; logs and counters contain it instead of the key."""
    scopes: Annotated[list[Scope], Meta(min_length=1)] = msgspec.field(default_factory=lambda: [Scope.INFERENCE])
    models: list[Annotated[str, Meta(min_length=1, max_length=256)]] = []
    """Shell patterns of the registered model names that it may use; empty: all models."""
    requests_per_minute: Limit = 0
    tokens_per_minute: Limit = 0
    tokens_per_day: Limit = 0
    """Days and months are those of UTC."""
    tokens_per_month: Limit = 0
    concurrent: Limit = 0
    """Requests that may wait or run at the same time."""
    expires: Annotated[UnixTime, Meta(ge=0)] = 0.0
    """0: never."""


class ApiKey(KeyRights, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One key: its digest, and its rights and limits."""

    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created: UnixTime = 0.0

    def allows(self, scope: Scope) -> bool:
        """Return whether the key has this scope."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def may_use(self, model: str) -> bool:
        """Return whether the key may use a model, given by its registered name."""
        return model_allowed(self.models, model)

    def expired(self, now: float) -> bool:
        """Return whether the key has expired. ``now``: Unix seconds."""
        return bool(self.expires) and now >= self.expires


def model_allowed(patterns: Sequence[str], model: str) -> bool:
    """Return whether a model's registered name matches one of the patterns, or there are no patterns."""
    return not patterns or any(fnmatch.fnmatchcase(model, pattern) for pattern in patterns)


class NewKey(NamedTuple):
    """A newly made key."""

    secret: str
    """What clients send. It is not stored anywhere."""
    entry: ApiKey


def make_key(rights: KeyRights, now: float) -> NewKey:
    """Return a new random key with these rights; raises ``invalid_request``. ``now``: Unix seconds."""
    if rights.name in KEY_VARIABLES:
        raise invalid(f"{rights.name} is the name of a setting", "name")
    if rights.expires and rights.expires <= now:
        raise invalid("the expiry must be in the future", "expires")
    secret = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
    fields = msgspec.structs.asdict(rights)
    return NewKey(secret, ApiKey(**fields, sha256=digest(secret), created=float(int(now))))


def with_key(keys: Sequence[ApiKey], key: ApiKey) -> list[ApiKey]:
    """Return the keys with another one added; raises ``conflict`` if its name is taken."""
    if any(other.name == key.name for other in keys):
        reason = f"the key {key.name} exists already; revoke it first, or choose another name"
        raise Failure(Code.CONFLICT, reason, param="name").raised()
    return [*keys, key]


def without_key(keys: Sequence[ApiKey], name: str) -> list[ApiKey]:
    """Return the keys without the one of this name; raises ``not_found`` or ``conflict``."""
    if name in KEY_VARIABLES:
        raise Failure(Code.CONFLICT, f"{name} is a key of the settings: change it there").raised()
    kept = [key for key in keys if key.name != name]
    if len(kept) == len(keys):
        raise Failure(Code.NOT_FOUND, f"there is no key {printable(name)}; `lemonbus keys list` lists them").raised()
    return kept


NO_ADMINISTRATOR: Final = (
    "no key of this server has the scope admin: after this one, no client could change the server or its keys;"
    " make one with the scope admin first"
)
"""Why the first key of an open server must have the scope admin."""


def administrators(keys: Iterable[ApiKey], now: float) -> list[ApiKey]:
    """Return the keys that may change the server and have not expired."""
    return [key for key in keys if key.allows(Scope.ADMIN) and not key.expired(now)]


class _KeyFile(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[ApiKey]


def digest(key: str | bytes) -> str:
    """Return the SHA-256 of a key as hexadecimal digits."""
    return hashlib.sha256(key.encode() if isinstance(key, str) else key).hexdigest()


def without_secrets(settings: Settings) -> Settings:
    """Return the settings as processes of other nodes may know them: keys as digests, and no sections.

    Sections may have secrets of engines and of other servers. What a worker needs of them is in the specification of its model.
    """
    known = {
        name: getattr(settings, name) and KEY_DIGEST + _setting_digest(getattr(settings, name))
        for name in KEY_VARIABLES
    }
    return msgspec.structs.replace(settings, **known, **{section: {} for section in SECTIONS})


def _setting_digest(value: str) -> str:
    """Return the digest of a key of the settings, which may stand there itself."""
    return value.removeprefix(KEY_DIGEST) if value.startswith(KEY_DIGEST) else digest(value)


def key_file(settings: Settings) -> Path:
    """Return the path of the file of keys."""
    return Path(settings.state_dir) / KEYS_FILE


def keys_of_settings(settings: Settings) -> list[ApiKey]:
    """Return the keys in the settings. ``api_key`` is an administrator's only if there is no ``admin_api_key``."""
    found = []
    if settings.api_key:
        scopes = [Scope.INFERENCE, Scope.METRICS] if settings.admin_api_key else [Scope.ADMIN]
        found.append(ApiKey(name="api_key", sha256=_setting_digest(settings.api_key), scopes=scopes))
    if settings.admin_api_key:
        administrator = _setting_digest(settings.admin_api_key)
        found.append(ApiKey(name="admin_api_key", sha256=administrator, scopes=[Scope.ADMIN]))
    return found


def keys_required(settings: Settings) -> bool:
    """Return whether callers need a key: the settings have one, or a file of keys exists, even an empty one."""
    return bool(settings.api_key or settings.admin_api_key) or key_file(settings).exists()


def read_keys(path: Path) -> list[ApiKey]:
    """Return the keys of a file; raises OSError if it cannot be read, ValueError if it is wrong (both say why)."""
    data = small_files.read_small_file(path)
    try:
        keys = msgspec.json.decode(data, type=_KeyFile).keys
    except DECODE_ERRORS as problem:
        raise ValueError(f"{path.name}: {problem}") from None
    names = [key.name for key in keys]
    wrong = next((name for name in names if names.count(name) > 1 or name in KEY_VARIABLES), None)
    if wrong is not None:
        raise ValueError(f"{path.name}: the name {wrong} is used twice, or for a key of the settings")
    return keys


def check_key_file(settings: Settings) -> None:
    """Read the file of API keys, if there is one; raises ``invalid_request``, which names the setting.

    Unlike other state files, a broken one is not moved aside: the server would then ask for no key.
    """
    path = key_file(settings)
    try:
        read_keys(path)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise invalid(f"{path} cannot be read: {problem.strerror}", "state_dir") from problem
    except ValueError as problem:
        raise invalid(f"{path.parent}: {problem}", "state_dir") from problem


def write_keys(path: Path, keys: Iterable[ApiKey]) -> None:
    """Replace the whole file, readable only for its owner. Raises OSError, in which case nothing has changed.

    Root gives the file to the owner of its directory, because the server runs as that user.
    """
    data = msgspec.json.format(msgspec.json.encode(_KeyFile(list(keys))), indent=2) + b"\n"
    with small_files.private_draft(path, data, lasting=True, owned=True) as draft:
        draft.replace(path)


@contextlib.contextmanager
def locked_keys(path: Path, sleep: Callable[[float], object] = time.sleep) -> Iterator[list[ApiKey]]:
    """Yield the keys for a change, while no other process or thread can change them; raises like :func:`read_keys`.

    Without a file, the list is empty. ``TimeoutError``: another process holds the lock for too long. ``sleep``: waits
    between two attempts to lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(directory, path, sleep)
        try:
            keys = read_keys(path)
        except FileNotFoundError:
            keys = []
        yield keys
    finally:
        # Closing is not enough: gevent's `os.close` may close a directory only when the hub of its thread runs next.
        fcntl.flock(directory, fcntl.LOCK_UN)
        os.close(directory)


def _lock(directory: int, path: Path, sleep: Callable[[float], object]) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process is changing the keys", str(path)) from None
            sleep(_LOCK_PAUSE_S)
        else:
            return
