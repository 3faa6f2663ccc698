"""``/internal/keys``: adds, lists and revokes the API keys of this server.

The answer comes when the file has been replaced. Each gateway looks at the file before it checks a request, so that a request
which begins after the answer is judged by the new keys, whichever process takes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeVar

import falcon
import msgspec

from gateway import threads
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding
from gateway.http.request_context import request_context
from protocol.config import api_keys
from protocol.config.api_keys import ApiKey, KeyRights, Scope
from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.runtime import logs

R = TypeVar("R")


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
    """Unix seconds; 0: not known."""
    expires: float
    """Unix seconds; 0: never."""


class KeysAnswer(msgspec.Struct):
    """The keys of this server."""

    file: str
    """The file of its state directory that has them, whether it exists or not."""
    required: bool
    """Whether every client needs a key."""
    keys: list[ListedKey]


class ChangedKeys(msgspec.Struct, kw_only=True):
    """What a change of the keys has come to."""

    status: Literal["success"] = "success"
    name: str
    file: str
    valid_keys: int
    """Keys that this server accepts now, those of its settings included."""
    valid_admin_keys: int
    """Those of them with the scope admin."""


class AddedKey(ChangedKeys, kw_only=True):
    """A new key."""

    key: str
    """What clients send. It is not stored, and no later answer has it."""
    first: bool
    """Whether no client needed a key until now."""


class _Resource:
    changes: ClassVar[frozenset[str]] = frozenset({"GET", "POST", "DELETE"})

    def __init__(self, session: SupervisorSession) -> None:
        """Manage the keys of the settings' state directory."""
        self._session = session

    @property
    def _settings(self) -> Settings:
        return self._session.settings

    def _change(self, change: Callable[[list[ApiKey]], list[ApiKey]]) -> list[ApiKey]:
        """Replace the keys of the file by what ``change`` makes of them, and return these."""
        path = api_keys.key_file(self._settings)

        def work() -> list[ApiKey]:
            with api_keys.locked_keys(path, threads.sleep) as keys:
                changed = change(keys)
                api_keys.write_keys(path, changed)
            return changed

        return _in_thread(work)

    def _result(self, keys: list[ApiKey], name: str) -> dict[str, Any]:
        now = time.time()
        everyone = [*api_keys.keys_of_settings(self._settings), *keys]
        return {
            "name": name,
            "file": str(api_keys.key_file(self._settings)),
            "valid_keys": sum(not key.expired(now) for key in everyone),
            "valid_admin_keys": len(api_keys.administrators(everyone, now)),
        }


def _in_thread(work: Callable[[], R]) -> R:
    """Return what ``work`` returns; raises a failure that says what is wrong with the file.

    It waits for disk and lock in a thread of the pool, so that other requests of the process go on.
    """
    try:
        return threads.in_thread(work)
    except OSError as problem:
        reason = f"the file of API keys could not be read or written: {problem.strerror}; the keys are as they were"
        raise Failure(Code.INTERNAL, reason, detail=str(problem)).raised() from problem
    except ValueError as problem:
        reason = f"the file of API keys is broken, and was not changed: {problem}"
        raise Failure(Code.INTERNAL, reason, detail=str(problem)).raised() from problem


class KeysResource(_Resource):
    """``/internal/keys``."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List the keys."""
        path = api_keys.key_file(self._settings)
        keys = _in_thread(lambda: api_keys.read_keys(path) if path.exists() else [])
        listed = [
            *(_listed(key, "settings") for key in api_keys.keys_of_settings(self._settings)),
            *(_listed(key, "file") for key in keys),
        ]
        required = request_context(req.env).keys_needed
        _answer(resp, KeysAnswer(str(path), required, listed))

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Add a key, and return it this once."""
        data = body_decoding.read_json(req, self._settings.body_limit)
        made = api_keys.make_key(body_decoding.decode(data, KeyRights), time.time())
        fixed = api_keys.keys_of_settings(self._settings)

        def add(keys: list[ApiKey]) -> list[ApiKey]:
            changed = api_keys.with_key(keys, made.entry)
            if not api_keys.administrators([*fixed, *changed], time.time()):
                raise Failure(Code.CONFLICT, api_keys.NO_ADMINISTRATOR, param="scopes").raised()
            return changed

        context = request_context(req.env)
        keys = self._change(add)
        _log("API key added", context.api_key, made.entry.name)
        _answer(resp, AddedKey(**self._result(keys, made.entry.name), key=made.secret, first=not context.keys_needed))


class KeyResource(_Resource):
    """``/internal/keys/{name}``."""

    def on_delete(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Revoke a key: requests that begin after the answer are refused. Those that run end within a second."""
        fixed = {key.sha256: key.name for key in api_keys.keys_of_settings(self._settings)}

        def revoke(keys: list[ApiKey]) -> list[ApiKey]:
            same = next((fixed[key.sha256] for key in keys if key.name == name and key.sha256 in fixed), "")
            if same:
                reason = f"the key {name} is also {same} of the settings, and would stay valid: change it there first"
                raise Failure(Code.CONFLICT, reason).raised()
            return api_keys.without_key(keys, name)

        keys = self._change(revoke)
        _log("API key revoked", request_context(req.env).api_key, name)
        _answer(resp, ChangedKeys(**self._result(keys, name)))


def _listed(key: ApiKey, origin: Literal["file", "settings"]) -> ListedKey:
    fields = msgspec.structs.asdict(key)
    del fields["sha256"]
    return ListedKey(origin=origin, **fields)


def _log(event: str, caller: ApiKey | None, name: str) -> None:
    logs.get_logger().info(event, key=name, by=caller.name if caller else "a client without a key")


def _answer(resp: falcon.Response, answer: msgspec.Struct) -> None:
    resp.content_type = falcon.MEDIA_JSON
    resp.cache_control = ["no-store"]
    resp.data = msgspec.json.encode(answer)
