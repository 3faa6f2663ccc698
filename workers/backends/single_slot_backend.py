"""A backend whose program works on one request at a time, and whose answers do not name the model."""

from __future__ import annotations

from typing import ClassVar

from protocol.config.settings import Settings
from protocol.models.recipes import ModelSpec
from workers.backends.arguments import check_arguments
from workers.backends.flags import FlagTable
from workers.backends.program_backend import ProgramBackend


class SingleSlotBackend(ProgramBackend):
    """Has one slot, and passes the user's arguments on.

    Subclasses set ``program``, the name of the program in messages.
    """

    key_variable: ClassVar[str]
    """The environment variable with the key of our own server. The original servers have no keys."""
    flag_table: ClassVar[FlagTable]
    slots = 1

    def __init__(self, spec: ModelSpec, settings: Settings) -> None:
        """Resolve the backend and the arguments; raises ``invalid_request`` for invalid ones."""
        super().__init__(spec, settings)
        self._words = check_arguments(self.arguments_option, self.flag_table, str(self._option(self.arguments_option)))

    @property
    def alias(self) -> str:
        """The model's name; the program does not know it."""
        return self.spec.name

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """See :meth:`Backend.environment`."""
        kept = super().environment(inherited)
        if self._is_own_server and self.key:
            # Not on the command line, which all users of the machine can read.
            kept[self.key_variable] = self.key
        return kept
