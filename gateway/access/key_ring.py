"""The keys of a server as one gateway process knows them: those of the settings, and the present ones of the file."""

from __future__ import annotations

import hmac
from collections.abc import Collection

from gateway.server_clock import SERVER_CLOCK
from protocol.config.api_keys import ApiKey, Scope, digest, keys_of_settings
from protocol.config.key_file import KeyFile
from protocol.config.settings import Settings
from protocol.failures import Code, Failure


class KeyRing:
    """Finds keys, and says what they may still do."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is read yet."""
        self._by_digest = self._fixed = {key.sha256: key for key in keys_of_settings(settings)}
        self._file = KeyFile(settings)

    def use_setting_keys(self, keys: list[ApiKey]) -> None:
        """Replace the keys of the settings, after a reload: this process then only finishes what it has begun."""
        self._fixed = {key.sha256: key for key in keys}
        self._by_digest = self._fixed | {key.sha256: key for key in self._file.keys}

    def required(self) -> bool:
        """Return whether callers need a key."""
        self._refresh()
        return bool(self._fixed) or self._file.exists

    def find(self, given: bytes) -> ApiKey:
        """Return a key's record; raises ``unauthorized`` if the key is unknown or expired."""
        return self.owner(digest(given))

    def owner(self, found: str) -> ApiKey:
        """Return the record of the key with this digest; raises as :meth:`find` does."""
        # The table is searched by a digest. A caller cannot choose its first digits, so the time reveals nothing about
        # a key.
        key = self._by_digest.get(found)
        if key is None or not hmac.compare_digest(found, key.sha256):
            raise Failure(Code.UNAUTHORIZED, "this API key is not valid").raised()
        if key.expired(SERVER_CLOCK.seconds()):
            raise Failure(Code.UNAUTHORIZED, f"the API key {key.name} has expired").raised()
        return key

    def demanded(self, _model: str) -> Failure | None:
        """Return why a request that began without a key may not go on; None if no key is required now either."""
        return Failure(Code.UNAUTHORIZED, "an API key is required from now on") if self.required() else None

    def withdrawal(self, key: ApiKey, scopes: Collection[Scope], model: str) -> Failure | None:
        """Return why a request that was admitted with a key may not go on; None if it may.

        ``key``: as it was then. ``scopes``: one of them suffices. ``model``: the registered name of the model that it
        uses, empty if unknown.
        """
        self._refresh()
        known = self._by_digest.get(key.sha256)
        if known is None:
            return Failure(Code.UNAUTHORIZED, f"the API key {key.name} has been revoked")
        if known.expired(SERVER_CLOCK.seconds()):
            return Failure(Code.UNAUTHORIZED, f"the API key {key.name} has expired")
        if not any(map(known.allows, scopes)):
            message = f"the API key {key.name} does not have the scope {' or '.join(scopes)} any more"
            return Failure(Code.FORBIDDEN, message)
        if model and not known.may_use(model):
            return Failure(Code.FORBIDDEN, f"The API key {key.name} may not use model {model} any more", model=model)
        return None

    def _refresh(self) -> None:
        if self._file.refresh():
            self._by_digest = self._fixed | {key.sha256: key for key in self._file.keys}
