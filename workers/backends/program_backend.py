"""A backend that starts a program: our server over an installed package, a release's program, or the user's own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import ClassVar

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, invalid
from protocol.models import installations
from protocol.models.installations import Installation
from protocol.models.recipes import ModelSpec, OptionValue, Provision
from workers.backends.base import Backend
from workers.backends.flag_table import FlagError, FlagTable
from workers.backends.user_arguments import check_arguments
from workers.backends.visible_devices import refuse_missing_devices


class ProgramBackend(Backend):
    """Finds the program, and makes its environment. The descriptor lists the programs."""

    program_setting: ClassVar[str] = ""
    """The setting with the user's own program, if there is one."""
    arguments_option: ClassVar[str] = ""
    """The load option with the user's arguments; empty: there is none."""

    def __init__(self, spec: ModelSpec, settings: Settings) -> None:
        """Resolve the backend; raises ``invalid_request`` for an unknown one."""
        super().__init__(spec, settings)
        recipe = self.descriptor.recipe
        named = self.descriptor.backend(spec.backend)
        if named is None:
            raise invalid(f"{recipe} has no backend {spec.backend!r}", f"{recipe}_backend")
        self._program = named
        self._words: list[str] = []
        """The user's arguments."""

    def _option(self, name: str) -> OptionValue:
        declared = self.descriptor.option(name)
        fallback = declared.default if declared and declared.default is not None else ""
        return self.spec.options.get(name, getattr(self.settings, name, fallback))

    @property
    def _is_own_server(self) -> bool:
        """Whether the program is one of our own servers."""
        return bool(self._program.requires)

    @property
    def shares_port(self) -> bool:
        """See :attr:`Backend.shares_port`. Our own servers do."""
        return self._is_own_server

    @property
    def _user_program(self) -> str:
        """The user's own program: a path, or a name on PATH."""
        return str(getattr(self.settings, self.program_setting)) if self.program_setting else self._program.executable

    def _installation(self) -> Installation | None:
        if self._program.provision is Provision.USER:
            return None
        recipe, _, name = (self._program.shares or f"{self.descriptor.recipe}:{self._program.name}").partition(":")
        found = installations.find_installations(self.settings.cache_dir, recipe, name)
        return found[0] if found else None

    def _executable(self) -> list[str] | None:
        installation = self._installation()
        if self._program.requires:
            if installation is None and importlib.util.find_spec(self._program.requires) is None:
                return None
            return [sys.executable, "-m", self._program.executable.removeprefix("module:")]
        if self._program.provision is Provision.USER:
            found = shutil.which(self._user_program)
            return [found] if found else None
        return [str(installation.program)] if installation and installation.program.is_file() else None

    def _installation_hint(self) -> str:
        """Return how to get a program that is missing."""
        if self._program.provision is Provision.USER:
            return f"{Path(self._user_program).name} was not found"
        cure = f"`lemonbus backends install {self.descriptor.recipe}:{self._program.name}` does that"
        extra = self._program.extra
        return f"{cure}, or `pip install 'lemonbus[{extra}]'`" if extra else cure

    def _has_package(self, name: str) -> bool:
        """Return whether the Python that runs our own program will find a package."""
        installation = self._installation()
        return importlib.util.find_spec(name) is not None or (
            installation is not None and (installation.packages / name).is_dir()
        )

    def _start_command(self) -> list[str]:
        """Return the words that start the program; raises ``backend_not_installed`` if it is missing."""
        words = self._executable()
        if words is None:
            what = f"the {self.descriptor.recipe} backend {self._program.name!r} is not installed: {self._installation_hint()}"
            raise Failure(Code.BACKEND_NOT_INSTALLED, what, model=self.spec.name).raised()
        return words

    def check(self) -> None:
        """See :meth:`Backend.check`."""
        self._start_command()
        if not self._is_own_server:
            refuse_missing_devices(self.spec, self.devices)
        self.check_arguments()

    def check_arguments(self) -> None:
        """See :meth:`Backend.check_arguments`."""
        if self._is_own_server:
            try:
                self._read_arguments()
            except FlagError as problem:
                raise invalid(f"{self.arguments_option}: {problem}", self.arguments_option) from None

    def _read_arguments(self) -> None:
        """Raise ``FlagError`` for the user's arguments that our own server does not know.

        Not all of our servers take arguments.
        """

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """See :meth:`Backend.environment`: without the variables of lemonbus, and with threads that do not spin.

        The configuration's variables override inherited ones, and those that lemonbus sets for its own use override
        both.
        """
        kept = {
            name: value
            for name, value in inherited.items()
            if not name.startswith(("LEMONBUS_", "LEMONADE_", *self.hidden))
            and name not in ("HF_TOKEN", "PYTHONSTARTUP")
        }
        installation = self._installation()
        if not self._is_own_server:
            kept.pop("PYTHONPATH", None)
            if installation:
                # Releases contain their libraries, but not all of them look for them beside the program.
                kept["LD_LIBRARY_PATH"] = _path(str(installation.program.parent), kept.get("LD_LIBRARY_PATH", ""))
        elif installation:
            kept["PYTHONPATH"] = _path(kept.get("PYTHONPATH", ""), str(installation.packages))
        return kept | {"GOMP_SPINCOUNT": "300"} | self.configured_environment()

    def prepare(self) -> None:
        """See :meth:`Backend.prepare`; most engines keep no files."""


def _path(*parts: str) -> str:
    return os.pathsep.join(filter(None, parts))


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
