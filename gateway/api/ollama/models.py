"""``/api/tags``, ``/api/ps``, ``/api/show``, ``/api/copy`` and ``/api/delete``: the downloaded models."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.common import model_facts
from gateway.api.common.model_facts import ModelName, rfc3339
from gateway.api.common.operations import CHANGE
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.config.api_keys import Scope
from protocol.failures import invalid
from protocol.messages.model_details import CopyModel, ModelDetails
from protocol.messages.model_files import Deleted, DeleteModel
from protocol.models.recipes import ModelType

LATEST: Final = ":latest"
NEVER: Final = "9999-12-31T23:59:59Z"
"""The unload time shown for a model that is never unloaded for being idle: it stays until another model needs its memory."""
_UNITS: Final = ((10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 2))


def tag(name: str) -> str:
    """Return a name as Ollama writes it: with a tag."""
    return name if ":" in name else name + LATEST


def names(details: ModelDetails) -> list[str]:
    """Return the names under which a model is listed: all that requests may use, because clients look for theirs.

    Each name appears once, the one that Ollama's users know first.
    """
    entry = details.entry
    return list(dict.fromkeys(map(tag, (model_facts.short_name(entry), *entry.given_names, entry.id, *entry.aliases))))


def in_words(parameters: int) -> str:
    """Return a number of parameters as Ollama writes it (``1.2B``, ``134.52M``); empty if it is unknown."""
    for size, unit, digits in _UNITS:
        if parameters >= size:
            return f"{parameters / size:.{digits}f}{unit}"
    return str(parameters) if parameters else ""


def capabilities(details: ModelDetails) -> list[str]:
    """Return what a model can do, in Ollama's words."""
    able = {
        "completion": model_facts.generates(details),
        "embedding": details.entry.type == ModelType.EMBEDDING,
        "insert": model_facts.inserts(details),
        "vision": model_facts.takes_images(details),
        "tools": model_facts.takes_tools(details),
        "thinking": model_facts.thinks(details),
    }
    return [word for word, true in able.items() if true]


NAME_FIELDS: Final = ("model", "name")
MODEL: Final = {"model": "llama3.2:1b"}
"""The model of examples."""


class NamedModelRequest(msgspec.Struct):
    """A request about one model. Older clients say ``name``."""

    model: ModelName | None = None
    name: ModelName | None = None

    def wanted(self) -> str:
        """Return the name; raises ``invalid_request`` if there is none, or two."""
        given = {each for each in (self.model, self.name) if each}
        if len(given) != 1:
            raise invalid("`model` is required" if not given else "`model` and `name` name different models", "model")
        return given.pop()


class CopyRequest(msgspec.Struct):
    """``POST /api/copy``."""

    source: ModelName
    destination: ModelName


class OllamaDetails(msgspec.Struct):
    """What a model's file says of it."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str

    @classmethod
    def of(cls, details: ModelDetails) -> OllamaDetails:
        """Return the details of a model."""
        facts = details.facts
        families = [facts.architecture] if facts.architecture else []
        size = in_words(model_facts.parameter_count(details))
        return cls("", facts.format, facts.architecture, families, size, facts.quantization or details.entry.dtype)


class ListedTag(msgspec.Struct, kw_only=True):
    """A downloaded model under one of its names."""

    name: str
    model: str
    """The same."""
    modified_at: str
    size: int
    digest: str
    details: OllamaDetails


class DownloadedTags(msgspec.Struct):
    """The downloaded models."""

    models: list[ListedTag]


class LoadedTag(msgspec.Struct, kw_only=True):
    """A loaded model."""

    name: str
    model: str
    """The same."""
    size: int
    """Bytes of memory, or of the file if that is unknown."""
    digest: str
    details: OllamaDetails
    expires_at: str
    size_vram: int
    context_length: int


class LoadedTags(msgspec.Struct):
    """The loaded models."""

    models: list[LoadedTag]


class ModelDescription(msgspec.Struct, kw_only=True):
    """All that is known of a model."""

    modelfile: str
    parameters: str
    template: str
    license: str
    details: OllamaDetails
    model_info: dict[str, Any]
    """The metadata in its file."""
    capabilities: list[str]
    modified_at: str


@route("GET", "/api/tags")
def list_models(caller: HttpCaller, _request: Nothing) -> DownloadedTags:
    """Lists the downloaded models.

    The newest are first, and each is listed under all the names that it was given.
    """
    found = sorted(model_facts.describe(caller), key=lambda details: -details.entry.created)
    return DownloadedTags(
        [
            ListedTag(
                name=name,
                model=name,
                modified_at=rfc3339(details.entry.created),
                size=details.size,
                digest=details.facts.digest,
                details=OllamaDetails.of(details),
            )
            for details in found
            for name in names(details)
        ]
    )


@route("GET", "/api/ps")
def list_loaded_models(caller: HttpCaller, _request: Nothing) -> LoadedTags:
    """Lists the loaded models."""
    return LoadedTags([_loaded(details) for details in model_facts.describe(caller) if details.entry.loaded])


def _loaded(details: ModelDetails) -> LoadedTag:
    name, size = names(details)[0], details.memory or details.size
    return LoadedTag(
        name=name,
        model=name,
        size=size,
        digest=details.facts.digest,
        details=OllamaDetails.of(details),
        expires_at=rfc3339(int(details.expires_at)) if details.expires_at else NEVER,
        size_vram=size if "gpu" in details.entry.device else 0,
        context_length=details.context,
    )


@route("POST", "/api/show", scope=Scope.INFERENCE, needs=NAME_FIELDS, failures=CHANGE, examples={"one": MODEL})
def show_model(caller: HttpCaller, request: NamedModelRequest) -> ModelDescription:
    """Shows a downloaded model."""
    caller.context.model = name = request.wanted()
    (details,) = model_facts.describe(caller, name)
    count = model_facts.parameter_count(details)
    metadata = details.facts.metadata
    parameters = f"num_ctx {details.context}" if details.context else ""
    return ModelDescription(
        modelfile="\n".join(filter(None, [f"FROM {name}", parameters and f"PARAMETER {parameters}"])) + "\n",
        parameters=parameters,
        template=details.facts.template,
        license=str(metadata.get("general.license", "")),
        details=OllamaDetails.of(details),
        model_info={**metadata, **({"general.parameter_count": count} if count else {})},
        capabilities=capabilities(details),
        modified_at=rfc3339(details.entry.created),
    )


@route(
    "POST",
    "/api/copy",
    changes=True,
    failures=CHANGE,
    examples={"one": {"source": "llama3.2:1b", "destination": "assistant"}},
)
def copy_model(caller: HttpCaller, request: CopyRequest) -> None:
    """Gives a model another name.

    Both names share its files and its engine.
    """
    caller.context.model = request.source
    caller.ask(lambda number: CopyModel(number, request.source, request.destination), str)


@route("DELETE", "/api/delete", changes=True, needs=NAME_FIELDS, failures=CHANGE, examples={"one": MODEL})
def delete_model(caller: HttpCaller, request: NamedModelRequest) -> None:
    """Removes such a name, or a model with its files."""
    caller.context.model = name = request.wanted()
    caller.ask(lambda number: DeleteModel(number, name, name_only=True), Deleted)
