"""stable-diffusion.cpp's recipe: its backends, its options, what it serves, and the files that it runs."""

from __future__ import annotations

from functools import partial
from typing import Final

from protocol.models.devices import Device
from protocol.models.recipes import BackendDescriptor as Program
from protocol.models.recipes import IdleCheck, LoadOption, ModelType, Provision, RecipeDescriptor
from workers.backends.flag_table import MAX_THREADS
from workers.backends.recipe import FileHead, Identity
from workers.backends.sdcpp.flags import PACKAGE, PART_FLAGS

GENERATIONS: Final = "images/generations"
EDITS: Final = "images/edits"
MAX_STEPS: Final = 100
"""sd-server allows no request more than this, and silently reduces larger ones."""
MIN_SIDE_PX: Final = 64
MAX_SIDE_PX: Final = 4096
SAMPLING_METHODS: Final = [
    *("euler", "euler_a", "heun", "dpm2", "dpm++2s_a", "dpm++2m", "dpm++2mv2", "ipndm", "ipndm_v", "lcm"),
    *("ddim_trailing", "tcd", "res_multistep", "res_2s"),
]
SUFFIXES: Final = (".gguf", ".safetensors")
_DIFFUSION: Final = frozenset(
    {"aura", "chroma", "cosmos", "flux", "hidream", "lumina2", "qwen_image", "sd1", "sd3", "sdxl", "z_image"}
)
"""Architectures that tools for GGUF files of diffusion models write."""
_DIFFUSION_TENSORS: Final = (
    *("cap_embedder.", "double_blocks.", "img_in.", "input_blocks.", "joint_blocks."),
    *("model.diffusion_model.", "transformer_blocks.", "unet."),
)


_picture_option = partial(LoadOption, image_default=True)


def _release(name: str, where: str, *devices: Device) -> Program:
    return Program(
        name=name,
        devices=list(devices),
        executable="sd-server",
        provision=Provision.ARCHIVE,
        systems=["linux", "win32"],
        help=f"a release's sd-server on {where}",
    )


DESCRIPTOR: Final = RecipeDescriptor(
    recipe="sd-cpp",
    title="stable-diffusion.cpp",
    backends=[
        Program(
            name="cpu",
            devices=[Device.CPU],
            executable="sd-server",
            requires=PACKAGE,
            extra="sdcpp",
            provision=Provision.ARCHIVE,
            help="a release's sd-server, or ours over the stable-diffusion-cpp-python package, on the processor",
        ),
        Program(
            name="system",
            devices=[Device.CPU],
            executable="sd-server",
            home="https://github.com/leejet/stable-diffusion.cpp",
            help="the sd-server on PATH, or the one that the setting sd_server names",
        ),
        _release("vulkan", "any GPU with Vulkan", Device.CPU, Device.AMD_GPU, Device.NVIDIA_GPU),
        _release("rocm", "an AMD GPU with ROCm", Device.AMD_GPU),
    ],
    options=[
        LoadOption(
            "sd-cpp_backend",
            "string",
            "which stable-diffusion.cpp runs the model",
            "cpu",
            choices=["cpu", "system", "vulkan", "rocm"],
        ),
        LoadOption("sdcpp_args", "args", "further arguments for sd-server; a model's other files, as --vae FILE", ""),
        _picture_option("steps", "int", "inference steps of a picture", 20, 1, MAX_STEPS),
        _picture_option("cfg_scale", "number", "scale of classifier-free guidance", 7.0, 0, 100),
        _picture_option("width", "int", "pixels of a picture's width", 512, MIN_SIDE_PX, MAX_SIDE_PX),
        _picture_option("height", "int", "pixels of a picture's height", 512, MIN_SIDE_PX, MAX_SIDE_PX),
        _picture_option(
            "sampling_method", "string", "sampling method; empty: the model's own", choices=SAMPLING_METHODS
        ),
        _picture_option("flow_shift", "number", "shift of a flow model's noise; 0: the model's own", None, 0, 100),
        LoadOption("threads", "int", "threads of the engine; 0: its own choice", 0, 0, MAX_THREADS),
    ],
    model_type=ModelType.IMAGE,
    label="image",
    serves={ModelType.IMAGE: [GENERATIONS, EDITS]},
    idle_check={GENERATIONS: IdleCheck.ANSWER, EDITS: IdleCheck.ANSWER},
    parts=PART_FLAGS,
    restartable=True,
)


def identify(file: FileHead) -> Identity | None:
    """Return what a GGUF or safetensors file is, if it is a diffusion model."""
    known = file.gguf is not None and file.gguf.architecture in _DIFFUSION
    if known or any(name.startswith(_DIFFUSION_TENSORS) for name in file.tensors):
        return Identity(DESCRIPTOR.recipe, (DESCRIPTOR.label,))
    return None
