"""Asks another server for a model: no process, no files, no memory. Its servers are in the section of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from protocol.config.server_address import ServerAddress, parse_address
from protocol.config.settings import Settings
from protocol.failures import invalid
from protocol.models.memory import MemoryEstimate
from protocol.models.recipes import ModelSpec, RecipeDescriptor
from workers.backends.openai_server import MODELS, OpenAiServerBackend
from workers.backends.recipe import Recipe
from workers.backends.remote.descriptor import DESCRIPTOR

MARGIN_S: Final = 10.0


class RemoteBackend(OpenAiServerBackend):
    """One model on other servers."""

    descriptor: ClassVar[RecipeDescriptor] = DESCRIPTOR
    default_slots: ClassVar[int] = 8
    program = "the remote server"

    def __init__(self, spec: ModelSpec, settings: Settings) -> None:
        """Read the keys of the section. Unless it names a path, the list of models shows whether the key is accepted."""
        super().__init__(spec, settings)
        self._health = self.section.health or MODELS

    @property
    def servers(self) -> Sequence[ServerAddress]:
        """See :attr:`Backend.servers`; raises ``invalid_request`` for an address that is none."""
        try:
            return [parse_address(url) for url in self.section.addresses]
        except ValueError as problem:
            raise invalid(f"url: {problem}", "url") from None

    @property
    def key(self) -> str:
        """The key that the section names; empty: there is none. A client's key is never sent."""
        return self.configured_key

    @property
    def timeout(self) -> float:
        """Seconds without a byte of an answer after which a request has failed."""
        return self.section.timeout or self.settings.silence

    @property
    def silence(self) -> float:
        """Longer than each server in turn may be silent: single requests end sooner."""
        return self.timeout * (len(self.section.addresses) + 1) + MARGIN_S

    def check(self) -> None:
        """See :meth:`Backend.check`."""
        _ = self.servers, self.configured_key

    def memory(self) -> MemoryEstimate:
        """See :meth:`Backend.memory`: it needs none here."""
        return MemoryEstimate(slots=self.slots)

    def health_problem(self, status: int, body: bytes) -> str:
        """See :meth:`Backend.health_problem`: a server that is not ready now is not waited for."""
        if not status:
            return f"cannot be reached: {body.decode('utf-8', 'replace').rpartition(': ')[2]}"
        if status in (401, 403):
            return "does not accept the key that the configuration has for it"
        return "" if self.is_healthy(status) else f"answers its health request with {status}"

    def command(self, port: int) -> list[str]:
        """Raise an error: there is no program."""
        raise NotImplementedError(port)

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """Raise an error: there is no program."""
        raise NotImplementedError(inherited)

    def prepare(self) -> None:
        """Do nothing: there are no files."""


RECIPE: Final = Recipe(DESCRIPTOR, RemoteBackend)
