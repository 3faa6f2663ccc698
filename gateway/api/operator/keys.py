"""``/internal/keys``: adds, lists and revokes the API keys of this server.

The answer comes when the file has been replaced. Each gateway looks at the file before it checks a request, so requests
that begin after the answer are judged by the new keys, whichever process takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from gateway.api.common.operations import BODY, CONFLICT, NOT_FOUND, STORAGE
from gateway.api.common.routes import HttpCaller, Nothing, route
from gateway.server_clock import SERVER_CLOCK
from protocol.config import api_keys
from protocol.config.api_keys import ApiKey, KeyRights, NewKey, Scope
from protocol.failures import Code, Failure, write_failure
from protocol.models.nodes import HEAD
from protocol.runtime import logs

R = TypeVar("R")
_PATH: Final = "/internal/keys"
_Sleep = Callable[[float], object]


class ListedKey(msgspec.Struct):
    """A key without its digest."""

    name: str
    origin: Literal["file", "settings"]
    scopes: list[Scope]
    models: list[str]
    requests_per_minute: int
    tokens_per_minute: int
    concurrent: int
    created: float
    """Unix seconds; 0: unknown."""
    expires: float
    """Unix seconds; 0: never."""
    tokens_per_day: int = 0
    tokens_per_month: int = 0


class KeysAnswer(msgspec.Struct):
    """The keys of this server."""

    file: str
    """The file of keys in its state directory, whether it exists or not."""
    required: bool
    """Whether every client needs a key."""
    keys: list[ListedKey]


class ChangedKeys(msgspec.Struct, kw_only=True):
    """The result of a change of the keys."""

    status: Literal["success"] = "success"
    name: str
    file: str
    valid_keys: int
    """Keys that this server accepts now, including those of its settings."""
    valid_admin_keys: int
    """How many of them have the scope admin."""


class AddedKey(ChangedKeys, kw_only=True):
    """A new key."""

    key: str
    """What clients send. It is not stored, and no later answer contains it."""
    first: bool
    """Whether no client needed a key until now."""


class NamedKey(msgspec.Struct):
    """A key by its name."""

    name: Annotated[str, Meta(min_length=1)]


@route("GET", _PATH, changes=True, secret=True)
def list_keys(caller: HttpCaller, _request: Nothing) -> KeysAnswer:
    """Lists the API keys, without their digests."""
    settings = caller.session.settings
    path = api_keys.key_file(settings)
    keys = _in_thread(lambda _: api_keys.read_keys(path) if path.exists() else [])
    shown = [
        *(listed(key, "settings") for key in api_keys.keys_of_settings(settings)),
        *(listed(key, "file") for key in keys),
    ]
    return KeysAnswer(str(path), caller.context.keys_needed, shown)


@route(
    "POST",
    _PATH,
    changes=True,
    secret=True,
    failures=BODY | CONFLICT | STORAGE,
    examples={"a client": {"name": "ci", "models": ["Qwen*"], "requests_per_minute": 60}},
)
def add_key(caller: HttpCaller, rights: KeyRights) -> AddedKey:
    """Adds an API key, and returns it this once. 409 if it would be the first one and not an administrator's."""
    made = api_keys.make_key(rights, SERVER_CLOCK.seconds())
    fixed = api_keys.keys_of_settings(caller.session.settings)

    def add(keys: list[ApiKey]) -> list[ApiKey]:
        more = api_keys.with_key(keys, made.entry)
        if not api_keys.administrators([*fixed, *more], SERVER_CLOCK.seconds()):
            raise Failure(Code.CONFLICT, api_keys.NO_ADMINISTRATOR, param="scopes").raised()
        return more

    everyone, file = _change(caller, "API key added", rights.name, add)
    return added(made, everyone, file, first=not caller.context.keys_needed)


@route("DELETE", _PATH + "/{name}", changes=True, secret=True, failures=NOT_FOUND | CONFLICT | STORAGE)
def revoke_key(caller: HttpCaller, key: NamedKey) -> ChangedKeys:
    """Revokes an API key: no request that begins after the answer is admitted with it.

    Those that run end within a second.
    """
    fixed = {each.sha256: each.name for each in api_keys.keys_of_settings(caller.session.settings)}

    def revoke(keys: list[ApiKey]) -> list[ApiKey]:
        same = next((fixed[each.sha256] for each in keys if each.name == key.name and each.sha256 in fixed), "")
        if same:
            reason = f"the key {key.name} is also {same} of the settings, and would stay valid: change it there first"
            raise Failure(Code.CONFLICT, reason).raised()
        return api_keys.without_key(keys, key.name)

    everyone, file = _change(caller, "API key revoked", key.name, revoke)
    return changed(everyone, key.name, file)


def listed(key: ApiKey, origin: Literal["file", "settings"]) -> ListedKey:
    """Return a key as the list shows it."""
    fields = msgspec.structs.asdict(key)
    del fields["sha256"]
    return ListedKey(origin=origin, **fields)


def changed(keys: list[ApiKey], name: str, file: Path) -> ChangedKeys:
    """Return what a change has come to: these keys are left."""
    now = SERVER_CLOCK.seconds()
    valid = sum(not key.expired(now) for key in keys)
    admins = len(api_keys.administrators(keys, now))
    return ChangedKeys(name=name, file=str(file), valid_keys=valid, valid_admin_keys=admins)


def added(made: NewKey, keys: list[ApiKey], file: Path, *, first: bool) -> AddedKey:
    """Return the same of a key that was made."""
    change = msgspec.structs.asdict(changed(keys, made.entry.name, file))
    return AddedKey(**change, key=made.secret, first=first)


def _change(
    caller: HttpCaller, event: str, name: str, change: Callable[[list[ApiKey]], list[ApiKey]]
) -> tuple[list[ApiKey], Path]:
    """Replace the keys of the file by what ``change`` makes of them; return all that are valid then, and the file."""
    settings = caller.session.settings
    if caller.session.node != HEAD:
        where = "API keys are changed through a gateway on the head, or there with `lemonbus keys`"
        raise Failure(Code.CONFLICT, where).raised()
    path = api_keys.key_file(settings)

    def work(sleep: _Sleep) -> list[ApiKey]:
        with api_keys.locked_keys(path, sleep) as keys:
            kept = change(keys)
            api_keys.write_keys(path, kept)
        return kept

    everyone = [*api_keys.keys_of_settings(settings), *_in_thread(work)]
    by = caller.context.api_key
    logs.get_logger().info(event, key=name, by=by.name if by else "a client without a key")
    return everyone, path


def _in_thread(work: Callable[[_Sleep], R]) -> R:
    """Return what ``work`` returns; raises a failure that says what is wrong with the file.

    Waiting for the disk and the lock is done in a thread of the pool, so that other requests of the process go on.
    """
    from gateway import threads  # noqa: PLC0415 - gevent, which the command line does not need

    try:
        return threads.in_thread(lambda: work(threads.sleep))
    except OSError as problem:
        reason = f"the file of API keys could not be read or written: {problem.strerror}; the keys are unchanged"
        raise write_failure(problem, reason).raised() from problem
    except ValueError as problem:
        reason = f"the file of API keys is broken, and was not changed: {problem}"
        raise Failure(Code.INTERNAL, reason, detail=str(problem)).raised() from problem
