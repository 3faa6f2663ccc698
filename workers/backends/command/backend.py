"""Starts a program of the operator's own on a port that lemonbus chooses, and speaks OpenAI's API with it."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import ClassVar, Final

from protocol.failures import Code, Failure, LemonbusError
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.recipes import RecipeDescriptor
from workers.backends.command.descriptor import DESCRIPTOR
from workers.backends.openai_server import OpenAiServerBackend
from workers.backends.recipe import Recipe
from workers.backends.visible_devices import device_variables, devices_called, refuse_missing_devices

STOP_SECONDS: Final = 10.0
"""How long the program has to end after its signal: it may have processes or containers of its own to end."""


class CommandBackend(OpenAiServerBackend):
    """One model behind a program that the configuration names."""

    descriptor: ClassVar[RecipeDescriptor] = DESCRIPTOR
    default_slots: ClassVar[int] = 1
    stop_seconds: ClassVar[float] = STOP_SECONDS
    ends_group: ClassVar[bool] = True

    _port = 0
    """That of the program, once :meth:`command` has been called."""

    @property
    def _words(self) -> list[str]:
        return self.section.command or []

    @property
    def program(self) -> str:
        """The name of the program."""
        return Path(self._words[0]).name

    @property
    def key(self) -> str:
        """See :attr:`Backend.key`: the program's own key, else the random one if a place for it is given, else none."""
        wanted = any("{key}" in text for text in (*self._words, *self.spec.env.values()))
        return self.configured_key or (super().key if wanted else "")

    @property
    def stop_signal(self) -> signal.Signals:
        """See :attr:`Backend.stop_signal`."""
        return signal.Signals[f"SIG{self.section.stop_signal}"]

    @property
    def working_directory(self) -> str | None:
        """See :attr:`Backend.working_directory`."""
        return self.section.working_directory

    def memory(self) -> MemoryEstimate:
        """See :meth:`Backend.memory`: what the section says.

        Numbers of devices count those of one vendor. Of several, the first that has all of them is taken for the program's.
        """
        needs = Counter({HOST: self.section.memory})
        vendors = dict.fromkeys(device.vendor for device in self.devices)
        found = [
            devices_called(self.spec.devices, [device for device in self.devices if device.vendor == vendor])
            for vendor in vendors
        ]
        for device in max(found, key=len, default=[]):
            needs[device.place] += self.section.device_memory
        return MemoryEstimate({place: PlaceNeed(need) for place, need in needs.items() if need}, slots=self.slots)

    def check(self) -> None:
        """See :meth:`Backend.check`."""
        folder = self.working_directory
        if folder is not None and not Path(folder).is_dir():
            raise self._missing("its working directory is missing", folder)
        if self._executable() is None:
            raise self._missing(f"its program {self.program} was not found, or cannot be executed", self._words[0])
        refuse_missing_devices(self.spec, self.devices)
        _ = self.configured_key

    def _missing(self, reason: str, path: str) -> LemonbusError:
        name = self.spec.name
        what = f"{name} cannot be loaded: {reason}; correct its section of the configuration, or install it"
        return Failure(Code.BACKEND_NOT_INSTALLED, what, model=name, detail=path).raised()

    def _executable(self) -> str | None:
        """Return the program: a path, seen from its working directory, or a name on the ``PATH`` that it will have."""
        first = self._words[0]
        if "/" in first:
            first = str(Path(self.working_directory or Path.cwd()) / first)
        return shutil.which(first, path=self.spec.env.get("PATH"))

    def command(self, port: int) -> list[str]:
        """See :meth:`Backend.command`."""
        self._port = port
        return [self._executable() or self._words[0], *(self._filled(word) for word in self._words[1:])]

    def _filled(self, text: str) -> str:
        values = {"port": str(self._port), "name": self.spec.name, "model": self.alias, "key": self.key}
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """See :meth:`Backend.environment`: the operator's program gets the server's own, with its ``PATH``."""
        kept = {name: value for name, value in inherited.items() if not name.startswith(("LEMONBUS_", "LEMONADE_"))}
        given = {name: self._filled(value) for name, value in self.spec.env.items()}
        return {**kept, **device_variables(self.spec.devices), **given}

    def prepare(self) -> None:
        """Do nothing: the program has its own directories."""


RECIPE: Final = Recipe(DESCRIPTOR, CommandBackend)
