"""The commands of llama-swap's models: what each is here. Pure, except that programs are looked for on this machine."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from protocol.config.import_plan import ImportPlan
from protocol.config.settings import Settings
from protocol.failures import printable
from protocol.models.recipes import DEFAULT_RECIPE, ModelType, Provision
from supervisor.imports.llama_swap_macros import PORT
from supervisor.imports.model_files import file_problem
from supervisor.models.options.load_options import Options, engine_arguments_problem
from workers.backends.flag_table import Flag, Setter
from workers.backends.registry import DESCRIPTORS, FLAGS

_RECIPE: Final = DESCRIPTORS[DEFAULT_RECIPE]
_FLAGS: Final = FLAGS[DEFAULT_RECIPE]
_SYSTEM: Final = next(each for each in _RECIPE.backends if each.provision is Provision.USER)
_BACKEND_OPTION: Final = f"{DEFAULT_RECIPE}_backend"
_ARGS_OPTION: Final = f"{DEFAULT_RECIPE}_args"
_FILE_KEYS: Final = {
    flag.names: key
    for key, name in (("path", _RECIPE.model_flag), ("mmproj", _RECIPE.projector_flag))
    if (flag := _FLAGS.find(name)) is not None
}
"""Names of a flag → the key of a section."""
_PROGRAM_SETTING: Final = _SYSTEM.executable.replace("-", "_")
_OF_LEMONBUS: Final = ("port", "<host>", "<alias>", "use_jinja")
"""Targets of flags that need no mention: lemonbus sets them to what they must be."""
_TYPES: Final = {"embedding": ModelType.EMBEDDING, "<rerank>": ModelType.RERANKING}
_PARALLEL: Final = 10
"""Requests that llama-swap gives to a program at once."""
_SHARED_CONTEXT: Final = (
    "llama-server shares its context among its slots; here each request has ctx_size, so there is one slot"
)


class SwapCommand(Protocol):
    """What is needed of a model."""

    cmd: str
    proxy: str
    check_endpoint: str
    use_model_name: str
    concurrency_limit: int


class _EngineSection(NamedTuple):
    """The parts of a section with ``path``."""

    files: dict[str, Any]
    options: dict[str, Any]
    args: list[str]


class Commands:
    """The sections of all commands of a file."""

    def __init__(self, folder: Path, start_timeout: float, plan: ImportPlan) -> None:
        """``folder``: that of the file, to which relative paths are relative. ``start_timeout``: 0 if it is not set."""
        self._folder, self._start_timeout, self._plan = folder, start_timeout, plan

    def sections(self, models: Mapping[str, SwapCommand]) -> dict[str, dict[str, Any]]:
        """Return the section of each model, without those that cannot be carried over."""
        words = {name: found for name, model in models.items() if (found := self._words(name, model.cmd))}
        engine = self._chosen_engine(words)
        sections = {
            name: self._engine_section(name, found[1:], engine)
            if self._is_file_model(found) and (self._program(found[0]) in (engine, ""))
            else self._program_section(name, found, models[name])
            for name, found in words.items()
        }
        return {name: section for name, section in sections.items() if section}

    def _words(self, name: str, command: str) -> list[str]:
        lines = [line for line in command.split("\n") if not line.lstrip().startswith("#")]
        try:
            words = shlex.split(" ".join(line.rstrip().removesuffix("\\") for line in lines))
        except ValueError as problem:
            words = []
            self._plan.leave(name, "the model", f"its command cannot be read: {problem}")
        return words

    def _program(self, word: str) -> str:
        """Return the path of a program, empty if this machine does not have it. One on PATH keeps its name."""
        path = str(self._folder / word) if "/" in word else word
        return path if shutil.which(path) else ""

    def _is_file_model(self, words: Sequence[str]) -> bool:
        own = Path(words[0]).name.startswith(_SYSTEM.executable)
        return own and _FLAGS.find(_RECIPE.model_flag) in map(_FLAGS.find, words)

    def _chosen_engine(self, words: Mapping[str, list[str]]) -> str:
        """Return the program that most of these models have, and make it the setting; empty if none is on this machine."""
        programs = Counter(self._program(found[0]) for found in words.values() if self._is_file_model(found))
        del programs[""]
        if not programs:
            return ""
        ((engine, _),) = programs.most_common(1)
        if engine != _SYSTEM.executable:
            self._plan.settings[_PROGRAM_SETTING] = engine
        return engine

    # A llama-server with a model file

    def _engine_section(self, name: str, words: Sequence[str], engine: str) -> dict[str, Any]:
        found = _EngineSection({}, {_BACKEND_OPTION: _SYSTEM.name} if engine else {}, [])
        if not engine:
            why = f"it is not on this machine, so lemonbus's own engine runs the model ({_RECIPE.backends[0].name})"
            self._plan.leave(name, "its llama-server", why)
        for pair in _pairs(words):
            self._take(name, pair, found, engine)
        options = found.options
        if "slots" in options and options.get("ctx_size"):
            options["ctx_size"] //= max(1, options["slots"])
        elif options.get("ctx_size"):
            options["slots"] = 1
            self._plan.leave(name, "parallel requests", _SHARED_CONTEXT)
        more = {"options": options, "args": shlex.join(found.args)}
        return {**found.files, **{key: value for key, value in more.items() if value}}

    def _take(self, name: str, pair: Sequence[str], found: _EngineSection, engine: str) -> None:
        """Add a flag with its value to the section, or note why not."""
        flag, value = _FLAGS.find(pair[0]), pair[-1]
        key = _FILE_KEYS.get(flag.names, "") if flag is not None and len(pair) > 1 else ""
        if key:
            path = self._folder / value
            found.files[key] = str(path)
            self._check_file(name, pair, path)
        elif flag is not None and flag.option:
            self._add_option(name, flag, value, found.options)
        elif flag is not None and flag.setter is Setter.LEMONBUS:
            if flag.target not in _OF_LEMONBUS:
                self._plan.leave(name, shlex.join(pair), "lemonbus decides this itself")
        elif self._accepts(name, pair, engine):
            found.args.extend(pair)

    def _check_file(self, name: str, pair: Sequence[str], path: Path) -> None:
        """Note what is wrong with a model file. Its section is written anyway: the file may be copied afterwards."""
        if problem := file_problem(path):
            self._plan.leave(
                name, shlex.join(pair), f"{problem}; the section is written, but loads fail until the file is right"
            )

    def _add_option(self, name: str, flag: Flag, value: str, options: dict[str, Any]) -> None:
        try:
            options[flag.option] = int(value)
        except ValueError:
            self._plan.leave(name, f"{flag.names.split()[0]} {value}", "lemonbus decides this itself")

    def _accepts(self, name: str, words: Sequence[str], engine: str) -> bool:
        """Return whether the engine takes a flag; if not, note why."""
        backend = _SYSTEM.name if engine else _RECIPE.backends[0].name
        options: Options = {_ARGS_OPTION: shlex.join(words), _BACKEND_OPTION: backend}
        problem = engine_arguments_problem(_RECIPE, options, Settings())
        if problem:
            self._plan.leave(name, shlex.join(words), printable(problem.removeprefix(f"{_ARGS_OPTION}: "), 300))
        return not problem

    # Any other program

    def _program_section(self, name: str, words: Sequence[str], model: SwapCommand) -> dict[str, Any] | None:
        program = self._program(words[0]) or words[0]
        command = [program, *self._with_port(words[1:], model.proxy)]
        if not any(PORT in word for word in command):
            self._plan.leave(name, "the model", "its command has no port that lemonbus could choose")
            return None
        section: dict[str, Any] = {"command": command, "slots": model.concurrency_limit or _PARALLEL}
        kind = next(
            (
                each.model_type
                for each in DESCRIPTORS.values()
                if Path(words[0]).name in {backend.executable for backend in each.backends if not backend.requires}
            ),
            ModelType.LLM,
        )
        flags = [flag.target for word in words if (flag := _FLAGS.find(word)) is not None]
        kind = next((_TYPES[target] for target in flags if target in _TYPES), kind)
        if kind != ModelType.LLM:
            section["type"] = kind.value
        if model.use_model_name:
            section["served_name"] = model.use_model_name
        if model.check_endpoint.startswith("/") and model.check_endpoint != "/health":
            section["health"] = model.check_endpoint
        if self._start_timeout:
            section["start_timeout"] = self._start_timeout
        return section

    @staticmethod
    def _with_port(words: Sequence[str], proxy: str) -> list[str]:
        """Return the words with ``{port}`` where they have the port of llama-swap's address of the program."""
        try:
            port = str(urlsplit(proxy.replace(PORT, "0")).port or 0)
        except ValueError:
            port = "0"
        if port == "0" or any(PORT in word for word in words):
            return list(words)
        found = []
        for word in words:
            before, equals, after = word.rpartition("=")
            if after == port:
                found.append(f"{before}{equals}{PORT}")
            elif after.startswith(f"{port}:"):
                found.append(f"{before}{equals}{PORT}{after.removeprefix(port)}")
            else:
                found.append(word)
        return found


def _pairs(words: Sequence[str]) -> list[list[str]]:
    """Return the flags, each with its value if it has one. What follows an unknown flag up to the next flag is its value."""
    found: list[list[str]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag = _FLAGS.find(word)
        takes_value = flag.kind is not None if flag is not None else bool(rest) and not rest[0].startswith("-")
        found.append([word, rest.pop(0)] if takes_value and rest else [word])
    return found
