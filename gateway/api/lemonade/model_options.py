"""``models/{id}/options``: the load options that are saved for a model, read and changed without loading it.

The shapes are those of the page "Lemonade API" of Lemonade 11.8 (``docs/api/lemonade.md``). ``loaded_options`` and
``reload_needed`` are ours.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gateway.api.common.operations import BODY, NO_MODEL, STORAGE, UNSUPPORTED
from gateway.api.common.request_fields import MAX_NAME_LENGTH, given_options
from gateway.api.common.routes import HttpCaller, route
from protocol.messages.model_details import ChangeModelOptions, ModelOptionsReport
from protocol.models.recipes import OptionValue

_PATH: Final = "models/{model_id:path}/options"
_Id = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]


class ModelOptionsId(msgspec.Struct, kw_only=True):
    """A model by one of its names."""

    model_id: _Id


class ModelOptionsChange(msgspec.Struct, kw_only=True):
    """Options of the model's recipe, as `load` takes them: `ctx_size`, `llamacpp_backend`, `llamacpp_args` and so on.

    `null` removes an option, and so do "", `auto` and -1, except that an automatic number is saved as such:
    `"ctx_size": -1`. Options that are not named stay as they are.
    """

    dry_run: bool | None = None
    """Save nothing; `effective` says what the change would do."""
    model_name: str | None = None
    """Ignored, so that `effective` can be sent back."""


class ModelOptionsRequest(ModelOptionsChange, kw_only=True):
    """A change of one model's options."""

    model_id: _Id


class ModelOptionsAnswer(msgspec.Struct):
    """The load options of a model."""

    model_name: str
    """As in the path."""
    recipe: str
    saved: dict[str, Any]
    """What is saved."""
    effective: dict[str, OptionValue | None]
    """A body for `load`: every option of the recipe, as a load that asks for none uses it."""
    defaults: dict[str, OptionValue | None]
    """The same without what is saved."""
    resolved_ctx_size: int
    """The context of such a load in tokens; -1: only the load decides, and a `load` with `dry_run` says how large it would be."""
    loaded_options: dict[str, OptionValue]
    """The options that the model is loaded with; empty if it is not loaded."""
    reload_needed: bool
    """Whether these differ from `effective`: a loaded model keeps its options until it is unloaded, or loaded with other ones."""


@route("GET", _PATH, changes=True, failures=NO_MODEL | UNSUPPORTED)  # arguments name files of this machine
def show_model_options(caller: HttpCaller, request: ModelOptionsId) -> ModelOptionsAnswer:
    """Shows the load options of a model: those that are saved, all that a load uses, and what they are without the saved ones."""
    return _answer(caller, request.model_id)


@route(
    "POST",
    _PATH,
    changes=True,
    body=ModelOptionsChange,
    body_required=False,
    failures=BODY | NO_MODEL | STORAGE | UNSUPPORTED,
    examples={"a context": {"ctx_size": 8192}, "automatic": {"ctx_size": -1}, "removed": {"ctx_size": None}},
)
def change_model_options(caller: HttpCaller, request: ModelOptionsRequest) -> ModelOptionsAnswer:
    """Saves load options for a model; nothing is loaded."""
    changes = given_options(caller.fields, request.__struct_fields__)
    return _answer(caller, request.model_id, changes=changes, dry_run=bool(request.dry_run))


@route("DELETE", _PATH, changes=True, failures=NO_MODEL | STORAGE | UNSUPPORTED)
def erase_model_options(caller: HttpCaller, request: ModelOptionsId) -> ModelOptionsAnswer:
    """Removes all load options that are saved for a model."""
    return _answer(caller, request.model_id, erase=True)


def _answer(caller: HttpCaller, name: str, **change: Any) -> ModelOptionsAnswer:
    caller.context.model = name
    report = caller.ask(partial(ChangeModelOptions, model=name, **change), ModelOptionsReport)
    caller.context.model = report.model
    return ModelOptionsAnswer(
        model_name=name,
        recipe=report.recipe,
        saved=report.saved,
        effective={**report.effective, "model_name": name},
        defaults={**report.defaults, "model_name": name},
        resolved_ctx_size=report.context,
        loaded_options=report.loaded_options,
        reload_needed=report.outdated,
    )
