"""The sampling parameters of a chat: flags of ``lemonbus run``, and names for ``/set``, from one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import click

from gateway.cli.exit_codes import USAGE, CommandError


class SamplingParameter(NamedTuple):
    """A field of a chat request."""

    kind: click.ParamType[Any]
    help: str


PARAMETERS: Final = {
    "max_tokens": SamplingParameter(click.IntRange(min=1), "Length limit of an answer."),
    "temperature": SamplingParameter(click.FloatRange(min=0), "Randomness; 0: always the likeliest token."),
    "top_p": SamplingParameter(click.FloatRange(0, 1), "Only the likeliest tokens up to this cumulative probability."),
    "top_k": SamplingParameter(click.IntRange(min=0), "Only this many of the likeliest tokens; 0: all."),
    "min_p": SamplingParameter(click.FloatRange(0, 1), "Only tokens at least this likely, relative to the likeliest."),
    "repeat_penalty": SamplingParameter(click.FloatRange(min=0), "Penalty of tokens that were used; 1: none."),
    "seed": SamplingParameter(click.INT, "Seed of the randomness, for answers that can be repeated."),
    "stop": SamplingParameter(click.STRING, "End the answer before this text. Repeatable."),
}
LISTS: Final = frozenset({"stop"})
"""Parameters with several values."""


def sampling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for each parameter; those that were given are passed under their names."""
    for name, parameter in reversed(PARAMETERS.items()):
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, name, type=parameter.kind, multiple=name in LISTS, help=parameter.help)(command)
    return command


def given_parameters(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that were given on the command line, as a request has them."""
    return {
        name: list(value) if name in LISTS else value
        for name, value in flags.items()
        if value is not None and value != ()
    }


def parameter_value(name: str, text: str) -> Any:
    """Return the value that a person typed; raises ``CommandError`` for an unknown name or a wrong value."""
    if name not in PARAMETERS:
        raise CommandError(f"there is no parameter {name!r}; there are {', '.join(PARAMETERS)}", USAGE)
    try:
        value = PARAMETERS[name].kind.convert(text, None, None)
    except click.BadParameter as problem:
        raise CommandError(f"{name}: {problem.message}", USAGE) from problem
    return [value] if name in LISTS else value
