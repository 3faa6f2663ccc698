"""Models as Ollama's answers show them. Pure."""

from __future__ import annotations

from typing import Any, Final

from gateway.api.common.models import model_facts
from gateway.api.common.models.model_list import rfc3339
from protocol.messages.model_details import ModelDetails
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


def details_object(details: ModelDetails) -> dict[str, Any]:
    """Return ``details`` of an answer."""
    family = details.facts.architecture
    return {
        "parent_model": "",
        "format": details.facts.format,
        "family": family,
        "families": [family] if family else [],
        "parameter_size": in_words(model_facts.parameter_count(details)),
        "quantization_level": details.facts.quantization or details.entry.dtype,
    }


def list_items(details: ModelDetails) -> list[dict[str, Any]]:
    """Return a model as ``tags`` lists it, once under each of its names."""
    return [
        {
            "name": name,
            "model": name,
            "modified_at": timestamp(details.modified),
            "size": details.size,
            "digest": details.facts.digest,
            "details": details_object(details),
        }
        for name in names(details)
    ]


def running_item(details: ModelDetails) -> dict[str, Any]:
    """Return a loaded model as ``ps`` lists it."""
    name = names(details)[0]
    size = details.memory or details.size
    return {
        "name": name,
        "model": name,
        "size": size,
        "digest": details.facts.digest,
        "details": details_object(details),
        "expires_at": timestamp(int(details.expires_at)) if details.expires_at else NEVER,
        "size_vram": size if "gpu" in details.entry.device else 0,
        "context_length": details.context,
    }


def show_answer(details: ModelDetails, name: str) -> dict[str, Any]:
    """Return the answer of ``show``. ``name``: the client's name for the model."""
    count = model_facts.parameter_count(details)
    metadata = details.facts.metadata
    parameters = f"num_ctx {details.context}" if details.context else ""
    licence = metadata.get("general.license", "")
    return {
        "modelfile": "\n".join(filter(None, [f"FROM {name}", parameters and f"PARAMETER {parameters}"])) + "\n",
        "parameters": parameters,
        "template": details.facts.template,
        "license": str(licence),
        "details": details_object(details),
        "model_info": {**metadata, **({"general.parameter_count": count} if count else {})},
        "capabilities": capabilities(details),
        "modified_at": timestamp(details.modified),
    }


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


def timestamp(seconds: int) -> str:
    """Return a time as RFC 3339 writes it."""
    return rfc3339(seconds)
