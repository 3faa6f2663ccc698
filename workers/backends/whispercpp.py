"""whisper.cpp: speech to text. What can be installed and asked of it; no adapter runs it yet."""

from __future__ import annotations

from typing import Final

from protocol.recipes import Backend as Program
from protocol.recipes import Descriptor, Device, IdleCheck, ModelType, Option, Provision

_HOME: Final = "https://github.com/ggml-org/whisper.cpp"

DESCRIPTOR: Final = Descriptor(
    recipe="whispercpp",
    title="whisper.cpp",
    backends=[
        Program(
            name="cpu",
            devices=[Device.CPU],
            executable="module:workers.engines.whisper_server",
            requires="pywhispercpp",
            provision=Provision.WHEEL,
            help="whisper.cpp from the pywhispercpp wheel, on the processor",
        ),
        Program(
            name="system",
            devices=[Device.CPU],
            executable="whisper-server",
            home=_HOME,
            help="the whisper-server on PATH",
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
        Option(
            "whispercpp_backend",
            "string",
            "which whisper.cpp runs the model",
            "cpu",
            choices=["cpu", "system", "vulkan", "npu"],
        ),
        Option("whispercpp_args", "args", "further arguments for whisper-server", ""),
        Option("threads", "int", "threads of the engine; 0: its own choice", 0, 0, 1024),
    ],
    forbidden_flags=["--host", "--model", "--port", "-m"],
    serves={ModelType.AUDIO: ["audio/transcriptions"]},
    idle_check={"audio/transcriptions": IdleCheck.ANSWER},
)
