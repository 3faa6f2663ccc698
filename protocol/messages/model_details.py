"""Messages about one model in detail: what its files and the configuration say about it, and how it is or would be loaded.

The calls are answered as those of :mod:`protocol.messages.calls`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.failures import Code
from protocol.messages.calls import Repetition, call_message, repeated_call
from protocol.messages.model_files import ModelFile
from protocol.messages.models import ModelEntry
from protocol.models.recipes import LoadOption, OptionValue
from protocol.times import UnixTime
from protocol.wire.envelope import control_message


class FileFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the files of a model say about it. Missing values are empty or 0."""

    format: str = ""
    """``gguf``, ``onnx``, or the suffix of the file."""
    architecture: str = ""
    """As the file calls it: ``llama``, ``qwen3``…"""
    parameters: int = 0
    context_length: int = 0
    """Tokens that the model was trained for."""
    layers: int = 0
    vocabulary: int = 0
    """Tokens of the vocabulary."""
    quantization: str = ""
    """The type of most of its weights: ``Q4_K_M``."""
    template: str = ""
    """The chat template."""
    digest: str = ""
    """64 hexadecimal digits that change with the file: its sha256, if the hub's cache names it by that."""
    metadata: dict[str, int | float | str | bool] = {}
    """The scalar values of a GGUF header, by its own keys. Lists and templates are left out."""
    voices: list[str] = []
    """Names of the voices that a model of speech has."""


@control_message
class StartDescription(msgspec.Struct, frozen=True):
    """Supervisor → job: read the headers of these files and folders."""

    paths: list[str]


@control_message
class Described(msgspec.Struct, frozen=True):
    """Job → supervisor: the headers of the next files, in the order of the request; empty facts for an unreadable file."""

    facts: list[FileFacts]


@repeated_call
class DescribeModels(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describe the downloaded models, or one named model → ``list[ModelDetails]``.

    A list has no templates and no metadata. A named model that is not downloaded is refused with ``model_not_found``.
    """

    number: int
    model: str = ""


class ModelDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """A downloaded model. Sizes in bytes."""

    entry: ModelEntry
    path: str
    size: int
    facts: FileFacts = FileFacts()
    is_default: bool = False
    state: str = ""
    """A state of the model's lifecycle; empty if it is neither loaded nor requested."""
    granted: int = 0
    """Requests that its engine is working on."""
    expires_at: UnixTime = 0.0
    """When the loaded model is unloaded if it stays idle from now on; 0: never."""
    context: int = 0
    """Context tokens of each request: of the loaded engine, else of the next one; 0 if the engine decides."""
    gpu_layers: int = 0
    memory: int = 0
    """Resident bytes of the engine after its last load, 0 if unknown."""
    forced_json: bool = False
    """Whether its engine can force an answer to be JSON."""
    options: dict[str, OptionValue] = {}
    """Its load options."""


@repeated_call
class CopyModel(msgspec.Struct, frozen=True):
    """Give a model another name, which survives restarts → the registered name of the model."""

    number: int
    source: str
    destination: str


@call_message(Repetition(done={Code.NOT_FOUND: lambda call: call.alias}))
class RemoveAlias(msgspec.Struct, frozen=True):
    """Remove a name that :class:`CopyModel` gave → the name; ``not_found``: no user gave it."""

    number: int
    alias: str


@repeated_call
class ListDefaultModels(msgspec.Struct, frozen=True):
    """→ ``list[DefaultModel]``: the models that are offered for a quick start."""

    number: int


class DefaultModel(msgspec.Struct, frozen=True):
    """One model that is offered for a quick start."""

    name: str
    """One of the names of the catalogue's entry."""
    description: str
    size_hint: str
    """The number of its parameters in words: ``1B``."""
    tags: list[str]
    checkpoint: str = ""
    labels: list[str] = []


@repeated_call
class ShowModel(msgspec.Struct, frozen=True):
    """Gateway → supervisor: what is configured for this model → :class:`ConfiguredModel`."""

    number: int
    model: str


class ConfiguredValue(msgspec.Struct, frozen=True):
    """One value, and where it comes from."""

    name: str
    value: Any
    origin: str
    """A section (``models.NAME``, ``defaults.RECIPE``), ``settings``, ``recipe``, ``catalogue`` or a file of the state."""


class ConfiguredModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """The configuration of a model. Environment variables of its engine are masked, because they often hold secrets."""

    entry: ModelEntry
    names: list[str]
    """Its aliases: from the configuration, from the catalogue, and those that users gave."""
    options: list[ConfiguredValue]
    """The load options of a load request that gives none."""
    settings: list[ConfiguredValue]
    """Settings of its sections other than options and arguments: ``ttl``, ``set`` …"""
    groups: list[str] = []
    state: str = ""
    """A state of the model's lifecycle; empty if it is neither loaded nor requested."""
    loaded_options: dict[str, OptionValue] = {}
    """The load options that its engine was started with; empty if it is not loaded."""
    known_options: list[LoadOption] = []
    """The load options that its recipe has."""
    files: list[ModelFile] = []


@repeated_call
class ChangeModelOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Change the load options that are saved for a model, and load nothing → :class:`ModelOptionsReport`."""

    number: int
    model: str
    changes: dict[str, OptionValue | None] = {}
    """Options to save; None removes one, and missing ones stay. Without any, the call only reads."""
    erase: bool = False
    """First remove all that are saved."""
    dry_run: bool = False
    """Save nothing; ``effective`` of the report says what would be."""


class ModelOptionsReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The load options of a model."""

    model: str
    recipe: str
    saved: dict[str, Any]
    """What ``recipe_options.json`` has for it, which may also be options that its recipe does not have."""
    effective: dict[str, OptionValue | None]
    """Every option of the recipe, as a load that asks for none uses it; None or an empty text: the engine's own choice."""
    defaults: dict[str, OptionValue | None]
    """The same without the saved ones."""
    context: int = -1
    """Context tokens of each request after such a load; -1: only the load decides."""
    loaded_options: dict[str, OptionValue] = {}
    """The options that its engine was started with; empty if it is not loaded."""
    outdated: bool = False
    """Whether it is loaded with options that differ from ``effective``: it keeps them until it is loaded again."""
