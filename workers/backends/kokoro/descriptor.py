"""Kokoro's recipe: its backend, its options, what it serves, and the files that it runs."""

from __future__ import annotations

from typing import Final

from protocol.models.devices import HYBRID, Device
from protocol.models.recipes import BackendDescriptor as Program
from protocol.models.recipes import IdleCheck, LoadOption, ModelFileKind, ModelType, Provision, RecipeDescriptor
from protocol.wire.speech import SPEECH
from workers.backends.flag_table import MAX_THREADS
from workers.backends.recipe import FileHead, Identity

PACKAGE: Final = "onnxruntime"
KEY: Final = "KOKORO_API_KEY"
"""Variable with the key that requests to our server need."""
SUFFIXES: Final = (".onnx",)
_FIRST_FIELD: Final = b"\x08"
"""The first byte of an ONNX file: the version of its form."""

DESCRIPTOR: Final = RecipeDescriptor(
    recipe="kokoro",
    title="Kokoro",
    backends=[
        Program(
            name="cpu",
            devices=[Device.CPU],
            executable="module:workers.engine_servers.kokoro_server",
            requires=PACKAGE,
            extra="kokoro",
            provision=Provision.WHEEL,
            help="Kokoro over ONNX Runtime from its wheel, on the processor",
        )
    ],
    options=[LoadOption("threads", "int", "threads of the engine; 0: its own choice", 0, 0, MAX_THREADS)],
    model_type=ModelType.TTS,
    label="tts",
    model_files=ModelFileKind("ONNX model", list(SUFFIXES)),
    name_hint="kokoro",
    hint_devices=[HYBRID, "cpu"],
    serves={ModelType.TTS: [SPEECH]},
    idle_check={SPEECH: IdleCheck.CLOSED},
    restartable=True,
)


def identify(file: FileHead) -> Identity | None:
    """Return what an ONNX file is, if its name says that it is a Kokoro model: what follows its first bytes does not."""
    if file.name.endswith(SUFFIXES) and "kokoro" in file.name and file.data.startswith(_FIRST_FIELD):
        return Identity(DESCRIPTOR.recipe, (DESCRIPTOR.label,))
    return None
