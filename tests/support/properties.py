"""How properties are checked: the inputs that each profile of hypothesis draws."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.internal.conjecture import providers


def register_profiles() -> None:
    """Register ``lemonbus`` for `make test`, and load it; register ``deep`` for `make properties`.

    `make test` judges a change, so its inputs are the same for each change; `make properties` looks for new ones.
    A property must not fail because the machine is busy, so none has a deadline; pytest's timeout bounds all tests.
    """
    settings.register_profile("lemonbus", deadline=None, print_blob=True, derandomize=True)
    settings.register_profile("deep", settings.get_profile("lemonbus"), max_examples=1000, derandomize=False)
    settings.load_profile("lemonbus")
    _draw_no_constants_of_imported_modules()


def examples(number: int) -> settings:
    """Decorator: this many inputs in `make test`, and ten times as many in `make properties`, instead of 100 and 1000."""
    return settings(max_examples=number * settings().max_examples // settings.get_profile("lemonbus").max_examples)


def _draw_no_constants_of_imported_modules() -> None:
    """If the inputs must be the same each time, draw no constants from our modules, because each process imports different ones."""
    is_local = providers.is_local_module_file
    providers.is_local_module_file = lambda path: not settings().derandomize and is_local(path)
