"""``audio/voices`` and ``audio/models``: what clients such as Open WebUI ask for before they offer speech."""

from __future__ import annotations

import msgspec

from gateway.api.common.model_facts import describe
from gateway.api.common.operations import MODEL
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.messages.models import ListModels, ModelEntry
from protocol.models.recipes import ModelType


class VoicesQuery(msgspec.Struct):
    """Whose voices."""

    model: str = ""
    """A model; empty: all downloaded models that read texts aloud."""


class Voice(msgspec.Struct):
    """A voice, for the field `voice` of `audio/speech`."""

    id: str
    name: str
    model: str


class VoiceList(msgspec.Struct):
    """The voices, each once for every model that has it."""

    voices: list[Voice]


class SpeechModel(msgspec.Struct):
    """A model, for the field `model` of `audio/speech`."""

    id: str
    name: str


class SpeechModelList(msgspec.Struct):
    """The models."""

    models: list[SpeechModel]


@route("GET", "audio/voices", failures=MODEL)
def list_voices(caller: HttpCaller, query: VoicesQuery) -> VoiceList:
    """Lists voices. They are read from the models' files, so no model is loaded."""
    found = [each for each in describe(caller, query.model) if each.entry.type == ModelType.TTS]
    return VoiceList([Voice(name, name, each.entry.id) for each in found for name in each.facts.voices])


@route("GET", "audio/models")
def list_speech_models(caller: HttpCaller, _query: Nothing) -> SpeechModelList:
    """Lists the downloaded models that read texts aloud."""
    entries = caller.ask(lambda number: ListModels(number, False), list[ModelEntry])
    found = [each.id for each in entries if each.type == ModelType.TTS and caller.context.may_use(each.id)]
    return SpeechModelList([SpeechModel(name, name) for name in found])
