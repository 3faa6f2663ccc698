"""stable-diffusion.cpp: pictures. What can be installed and asked of it; no adapter runs it yet."""

from __future__ import annotations

from typing import Final

from protocol.recipes import Backend as Program
from protocol.recipes import Descriptor, Device, IdleCheck, ModelType, Option, Provision

_HOME: Final = "https://github.com/leejet/stable-diffusion.cpp"

DESCRIPTOR: Final = Descriptor(
    recipe="sd-cpp",
    title="stable-diffusion.cpp",
    backends=[
        Program(
            name="cpu",
            devices=[Device.CPU],
            executable="sd-server",
            provision=Provision.ARCHIVE,
            help="a release's sd-server on the processor",
        ),
        Program(
            name="system",
            devices=[Device.CPU],
            executable="sd-server",
            home=_HOME,
            help="the sd-server on PATH",
        ),
        Program(
            name="vulkan",
            devices=[Device.CPU, Device.AMD_GPU, Device.NVIDIA_GPU],
            executable="sd-server",
            provision=Provision.ARCHIVE,
            systems=["linux", "win32"],
            help="a release's sd-server on any GPU with Vulkan",
        ),
        Program(
            name="rocm",
            devices=[Device.AMD_GPU],
            executable="sd-server",
            provision=Provision.ARCHIVE,
            systems=["linux", "win32"],
            help="a release's sd-server on an AMD GPU with ROCm",
        ),
    ],
    options=[
        Option(
            "sd-cpp_backend",
            "string",
            "which stable-diffusion.cpp runs the model",
            "cpu",
            choices=["cpu", "system", "vulkan", "rocm"],
        ),
        Option("sdcpp_args", "args", "further arguments for sd-server", ""),
        Option("steps", "int", "inference steps of a picture", 20, 1, 1000),
        Option("cfg_scale", "number", "scale of classifier-free guidance", 7.0, 0, 100),
        Option("width", "int", "pixels of a picture's width", 512, 64, 4096),
        Option("height", "int", "pixels of a picture's height", 512, 64, 4096),
    ],
    forbidden_flags=[
        "--diffusion-model",
        "--listen-ip",
        "--listen-port",
        "--llm",
        "--model",
        "--tae",
        "--vae",
        "-m",
    ],
    serves={ModelType.IMAGE: ["images/generations", "images/edits", "images/variations"]},
    idle_check={
        "images/generations": IdleCheck.ANSWER,
        "images/edits": IdleCheck.ANSWER,
        "images/variations": IdleCheck.ANSWER,
    },
)
