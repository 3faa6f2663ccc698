"""The keys of a server, as one gateway process knows them: those of the settings, and those of the file as it is now."""

from __future__ import annotations

import contextlib
import hmac
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from protocol.config.api_keys import ApiKey, Scope, digest, key_file, keys_of_settings, read_keys
from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.runtime import logs
from protocol.wire.endpoints import keys_seen_file


class _FileVersion(NamedTuple):
    """Differs between a file and the one that replaced it."""

    inode: int
    size: int
    modified: int


class KeyRing:
    """Finds keys. The file is read again as soon as it has changed.

    It never opens a server that had keys: a file that is deleted counts as one without keys, also in a process that has
    not seen it, and of one that cannot be read the keys that were read last stay valid.
    """

    def __init__(self, settings: Settings) -> None:
        """Nothing is read yet."""
        self._path = key_file(settings)
        self._by_digest = self._fixed = {key.sha256: key for key in keys_of_settings(settings)}
        self._version: _FileVersion | None = None
        self._had_file = False
        self._seen_file = keys_seen_file(Path(settings.runtime_dir))
        # As bytes, because they are looked at in every request, and a path is made into bytes each time.
        self._path_bytes, self._seen_bytes = os.fsencode(self._path), os.fsencode(self._seen_file)

    def required(self) -> bool:
        """Return whether callers need a key."""
        self._refresh()
        return bool(self._fixed) or self._had_file

    def find(self, given: bytes) -> ApiKey:
        """Return what is known of a key; raises ``unauthorized`` if it is unknown or expired."""
        found = digest(given)
        # The table is found by a digest, of which a caller cannot choose the first digits: time tells nothing of a key.
        key = self._by_digest.get(found)
        if key is None or not hmac.compare_digest(found, key.sha256):
            raise Failure(Code.UNAUTHORIZED, "this API key is not valid").raised()
        if key.expired(time.time()):
            raise Failure(Code.UNAUTHORIZED, f"the API key {key.name} has expired").raised()
        return key

    def withdrawal(self, key: ApiKey | None, scopes: Collection[Scope], model: str) -> Failure | None:
        """Return why a request that was admitted may not go on; None if it may.

        ``key``: the one that it came with, as it was then; ``scopes``: those of which one suffices; ``model``: the registered
        name of the model that it uses, empty if none is known.  What began without a key may end, except for reading the log.
        """
        if key is None:
            refused = Scope.LOGS in scopes and self.required()
            return Failure(Code.UNAUTHORIZED, "an API key is required from now on") if refused else None
        self._refresh()
        known = self._by_digest.get(key.sha256)
        if known is None:
            return Failure(Code.UNAUTHORIZED, f"the API key {key.name} has been revoked")
        if known.expired(time.time()):
            return Failure(Code.UNAUTHORIZED, f"the API key {key.name} has expired")
        if not any(known.allows(scope) for scope in scopes):
            message = f"the API key {key.name} does not have the scope {' or '.join(scopes)} any more"
            return Failure(Code.FORBIDDEN, message)
        if model and not known.may_use(model):
            return Failure(Code.FORBIDDEN, f"The API key {key.name} may not use model {model} any more", model=model)
        return None

    def _refresh(self) -> None:
        # A stat that fails raises, which costs ten times as much as asking; most servers have no file.
        if not self._had_file and not os.access(self._path_bytes, os.F_OK) and not os.access(self._seen_bytes, os.F_OK):
            return
        try:
            facts = os.stat(self._path_bytes)  # noqa: PTH116 - a third of the time of Path.stat, in every request
            version = _FileVersion(facts.st_ino, facts.st_size, facts.st_mtime_ns)
        except FileNotFoundError:
            version = None
            self._had_file = self._had_file or self._seen_file.exists()
        except OSError as problem:
            self._report(problem.strerror or str(problem))
            return
        if version == self._version:
            return
        self._version = version
        if version is not None or self._had_file:
            self._had_file = True
            with contextlib.suppress(OSError):
                self._seen_file.touch(mode=0o600)
            self._read()

    def _read(self) -> None:
        try:
            keys = read_keys(self._path)
        except FileNotFoundError:
            keys = []
            self._report("it was deleted, so that its keys are not valid any more")
        except (OSError, ValueError) as problem:
            self._report(str(problem))
            return
        self._by_digest = self._fixed | {key.sha256: key for key in keys}

    def _report(self, problem: str) -> None:
        logs.get_logger().error("the file of API keys cannot be used", file=self._path.name, reason=problem)
