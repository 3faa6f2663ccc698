"""whisper.cpp's recipe: its backends, its options, what it serves, and the files that it runs."""

from __future__ import annotations

from typing import Final

from protocol.models import checkpoints
from protocol.models.devices import Device
from protocol.models.recipes import BackendDescriptor as Program
from protocol.models.recipes import IdleCheck, LoadOption, ModelFileKind, ModelType, Provision, RecipeDescriptor
from workers.backends.flag_table import MAX_THREADS
from workers.backends.recipe import FileHead, Identity
from workers.backends.whispercpp.flags import PACKAGE

TRANSCRIPTIONS: Final = "audio/transcriptions"
TRANSLATIONS: Final = "audio/translations"
_HOME: Final = "https://github.com/ggml-org/whisper.cpp"

DESCRIPTOR: Final = RecipeDescriptor(
    recipe="whispercpp",
    title="whisper.cpp",
    backends=[
        Program(
            name="cpu",
            devices=[Device.CPU],
            executable="module:workers.engine_servers.whisper_server",
            requires=PACKAGE,
            extra="whispercpp",
            provision=Provision.WHEEL,
            help="whisper.cpp from the pywhispercpp wheel, on the processor",
        ),
        Program(
            name="system",
            devices=[Device.CPU],
            executable="whisper-server",
            home=_HOME,
            help="the whisper-server on PATH, or the one that the setting whisper_server names",
        ),
        Program(
            name="vulkan",
            devices=[Device.CPU, Device.AMD_GPU, Device.NVIDIA_GPU],
            executable="whisper-server",
            provision=Provision.ARCHIVE,
            systems=["linux", "win32"],
            help="a release's whisper-server on any GPU with Vulkan",
        ),
        Program(
            name="npu",
            devices=[Device.AMD_NPU],
            executable="whisper-server",
            provision=Provision.ARCHIVE,
            systems=["win32"],
            help="a release's whisper-server on an AMD NPU",
        ),
    ],
    options=[
        LoadOption(
            "whispercpp_backend",
            "string",
            "which whisper.cpp runs the model",
            "cpu",
            choices=["cpu", "system", "vulkan", "npu"],
        ),
        LoadOption("whispercpp_args", "args", "further arguments for whisper-server", ""),
        LoadOption("threads", "int", "threads of the engine; 0: its own choice", 0, 0, MAX_THREADS),
    ],
    model_type=ModelType.AUDIO,
    label="transcription",
    model_files=ModelFileKind("ggml file", [".bin", ".gguf"]),
    optional_checkpoints=["npu_cache"],
    serves={ModelType.AUDIO: [TRANSCRIPTIONS, TRANSLATIONS]},
    idle_check={TRANSCRIPTIONS: IdleCheck.CLOSED, TRANSLATIONS: IdleCheck.CLOSED},
    restartable=True,
)
SUFFIXES: Final = (".bin",)


def identify(file: FileHead) -> Identity | None:
    """Return what a ggml file is, if it is one."""
    if file.name.endswith(SUFFIXES) and file.data.startswith(checkpoints.GGML_MAGIC):
        return Identity(DESCRIPTOR.recipe, (DESCRIPTOR.label,))
    return None
