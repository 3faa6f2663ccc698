"""The part of the bindings that our sd-server uses: the same structures and calls, and memory that malloc really allocated.

A picture has one colour, which depends on its seed, steps and prompt, and on the first pixels of its input image.
"""

import ctypes
import enum
import sys
import time
import zlib
from typing import Any

_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]

sd_log_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
sd_progress_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int, ctypes.c_float, ctypes.c_void_p)
_log: list[Any] = []
_progress: list[Any] = []


class _Names(enum.IntEnum):
    A = 0
    B = 1
    COUNT = 2


GGMLType = RNGType = Prediction = SampleMethod = Scheduler = _Names


class sd_ctx_params_t(ctypes.Structure):  # noqa: N801 - the library's own names, here and below
    """What a model is loaded with."""

    _fields_ = (
        *[
            (f"{name}_path", ctypes.c_char_p)
            for name in ("model", "diffusion_model", "llm", "vae", "taesd", "clip_l", "clip_g", "t5xxl")
        ],
        ("free_params_immediately", ctypes.c_bool),
        ("vae_decode_only", ctypes.c_bool),
        ("n_threads", ctypes.c_int),
        ("wtype", ctypes.c_int),
        ("flash_attn", ctypes.c_bool),
    )


class sd_image_t(ctypes.Structure):  # noqa: N801
    """Pixels."""

    _fields_ = (
        ("width", ctypes.c_uint32),
        ("height", ctypes.c_uint32),
        ("channel", ctypes.c_uint32),
        ("data", ctypes.POINTER(ctypes.c_uint8)),
    )


class _Guidance(ctypes.Structure):
    _fields_ = (("txt_cfg", ctypes.c_float), ("img_cfg", ctypes.c_float), ("distilled_guidance", ctypes.c_float))


class _Sampling(ctypes.Structure):
    _fields_ = (
        ("guidance", _Guidance),
        ("scheduler", ctypes.c_int),
        ("sample_method", ctypes.c_int),
        ("sample_steps", ctypes.c_int),
    )


class sd_img_gen_params_t(ctypes.Structure):  # noqa: N801
    """What a picture is drawn with."""

    _fields_ = (
        ("prompt", ctypes.c_char_p),
        ("negative_prompt", ctypes.c_char_p),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("sample_params", _Sampling),
        ("seed", ctypes.c_int64),
        ("batch_count", ctypes.c_int),
        ("strength", ctypes.c_float),
        ("init_image", sd_image_t),
        ("ref_images", ctypes.POINTER(sd_image_t)),
        ("ref_images_count", ctypes.c_int),
        ("mask_image", sd_image_t),
    )


class _Names_of:  # noqa: N801
    argtypes: Any = None

    def __call__(self, text: bytes) -> int:
        return {b"a": 0, b"b": 1}.get(text, 2)


class _Calls:
    str_to_sample_method = str_to_scheduler = str_to_sd_type = str_to_rng_type = str_to_prediction = _Names_of()

    def sd_ctx_params_init(self, params: Any) -> None:
        params._obj.free_params_immediately = params._obj.vae_decode_only = True

    def sd_img_gen_params_init(self, params: Any) -> None:
        picture = params._obj
        picture.width = picture.height = 512
        picture.seed, picture.sample_params.sample_steps = -1, 20


_lib = _Calls()


def sd_set_log_callback(callback: Any, _data: object) -> None:
    _log[:] = [callback]


def sd_set_progress_callback(callback: Any, _data: object) -> None:
    _progress[:] = [callback]
    callback(1, 2, 0.1, None)  # as while a model is loaded


def new_sd_ctx(params: Any) -> int:
    given = params._obj
    assert not given.free_params_immediately
    assert not given.vae_decode_only
    file = (given.model_path or given.diffusion_model_path).decode()
    _log[0](1, b"loading a model\n", None)
    _log[0](0, b"unasked output\n", None)
    return 0 if "broken" in file else 4711


def sd_ctx_supports_image_generation(context: int) -> bool:
    return context == 4711


def generate_image(_context: int, params: Any) -> Any:
    asked = params._obj
    prompt = asked.prompt.decode()
    if "nothing" in prompt:
        return None
    if "slow" in prompt:
        time.sleep(60)
    sys.stderr.write(f"steps {asked.sample_params.sample_steps} cfg {asked.sample_params.guidance.txt_cfg:g} ")
    sys.stderr.write(f"method {asked.sample_params.sample_method} not {asked.negative_prompt.decode()!r}\n")
    for step in range(asked.sample_params.sample_steps):
        _progress[0](step + 1, asked.sample_params.sample_steps, 0.1, None)
    seen = [asked.ref_images[place] for place in range(asked.ref_images_count)]
    seen += [asked.mask_image] if asked.mask_image.data else []
    beside = [(image.width, image.height, image.channel, image.data[0]) for image in seen]
    assert not seen or asked.init_image.data[0] == seen[0].data[0]
    images = ctypes.cast(_libc.malloc(ctypes.sizeof(sd_image_t) * asked.batch_count), ctypes.POINTER(sd_image_t))
    size = asked.width * asked.height * 3
    for place in range(asked.batch_count):
        colour = (
            zlib.crc32(f"{prompt.strip()} {asked.seed + place} {asked.sample_params.sample_steps} {beside}".encode())
            & 0xFF
        )
        data = _libc.malloc(size)
        ctypes.memset(data, colour, size)
        pixels = ctypes.cast(data, ctypes.POINTER(ctypes.c_uint8))
        images[place] = sd_image_t(asked.width, asked.height, 3, pixels)
    return images
