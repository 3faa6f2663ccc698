"""What an engine and the files of its model say about themselves, as values that do not depend on the recipe."""

from __future__ import annotations

from typing import NamedTuple

from protocol.models.memory import MemoryEstimate


class EngineProgress(NamedTuple):
    """How far an engine is with its present request: ``done`` of ``total`` in ``unit``."""

    done: int
    total: int
    unit: str


class EngineFacts(NamedTuple):
    """What a ready engine reports about itself."""

    slots: int
    context: int
    """Context tokens of each request."""
    version: str = ""
    takes_tools: bool = True
    """Whether the model's chat template has a place for tools."""


class ModelFacts(NamedTuple):
    """What the headers of a model's files contain."""

    size: int
    """Bytes of all of them together."""
    context: int = 0
    """Tokens that the model was trained for; 0 if unknown."""
    parameters: int = 0
    """0 if unknown."""
    token_bytes: int = 0
    """Bytes that the engine keeps for each token of the context, in the usual type; 0 if unknown."""
    estimate: MemoryEstimate = MemoryEstimate()
    """What memory the engine will need. It is known when the headers were read."""
    cached: bool = True
    """Whether the engine keeps what it computed for each token of a request, in memory that grows with its slots."""
