"""The part of stable-diffusion.cpp's C interface that our sd-server uses: one model, and the images it draws.

The structures are those of the stable-diffusion-cpp-python package. Only its module of bindings is loaded: the package
around it imports an imaging library first, prints, and reads file names out of prompts.
"""

from __future__ import annotations

import ctypes
import importlib.util
import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from workers.backends.flag_table import FlagError, Value
from workers.backends.sdcpp.flags import PACKAGE

_WORDS: Final = {
    "wtype": ("str_to_sd_type", "GGMLType"),
    "rng_type": ("str_to_rng_type", "RNGType"),
    "sampler_rng_type": ("str_to_rng_type", "RNGType"),
    "prediction": ("str_to_prediction", "Prediction"),
    "sample_method": ("str_to_sample_method", "SampleMethod"),
    "scheduler": ("str_to_scheduler", "Scheduler"),
}
"""Parameter → the library's function that reads its names, and the names it has.

The last number is their count, which is also the result for an unknown name.
"""
_TAGS: Final = ("DEBUG", "INFO", "WARN", "ERROR")


class RawImage(NamedTuple):
    """Pixels, row by row."""

    width: int
    height: int
    channels: int
    data: bytes


def load_bindings() -> ModuleType:
    """Load the package's bindings without the package; raises ImportError."""
    package = importlib.util.find_spec(PACKAGE)
    for folder in (package.submodule_search_locations or []) if package else []:
        file = Path(folder) / f"{PACKAGE}.py"
        spec = importlib.util.spec_from_file_location(f"{PACKAGE}.{PACKAGE}", file)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except (OSError, RuntimeError) as problem:
                raise ImportError(str(problem)) from problem
            return module
    raise ImportError(f"{PACKAGE} is not installed")


class SdLibrary:
    """The library with one model, and the defaults of an image."""

    def __init__(self, bindings: Any, given: list[tuple[str, Value]]) -> None:
        """Read the command line's part of the parameters; raises :class:`FlagError`. Loads nothing yet."""
        self._bindings = bindings
        self._calls = bindings._lib  # noqa: SLF001 - half of the functions have no binding
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]
        self._given = given
        self._drawing = False
        self._listen("verbose" in {target for target, _ in given})
        self._context = bindings.sd_ctx_params_t()
        self._calls.sd_ctx_params_init(ctypes.byref(self._context))
        # A model that is used again and again, and also reads images.
        self._context.free_params_immediately = self._context.vae_decode_only = False
        for target, value in given:
            length, _, name = target.partition(".")
            if length == "context" and not (name == "n_threads" and int(value) <= 0):
                self._put(self._context, name, value)
        self._model: Any = None

    def _listen(self, verbose: bool) -> None:
        least = 0 if verbose else 1

        def log(level: int, text: bytes | None, _data: object) -> None:
            if level >= least and text:
                tag = _TAGS[min(level, 3)]
                sys.stderr.write(f"[{tag:<5}] {text.decode('utf-8', 'replace').rstrip()}\n")
                sys.stderr.flush()

        def step(step: int, steps: int, seconds: float, _data: object) -> None:
            """Print what the original's bars tell, on lines of their own; nothing while the model is loaded."""
            if self._drawing and step:
                sys.stderr.write(f"  | {step}/{steps} - {seconds:.2f}s/it\n")
                sys.stderr.flush()

        self._callbacks = (
            self._bindings.sd_log_callback(log),
            self._bindings.sd_progress_callback(step),
        )
        self._bindings.sd_set_log_callback(self._callbacks[0], None)
        self._bindings.sd_set_progress_callback(self._callbacks[1], None)

    def _put(self, owner: Any, path: str, value: Value) -> None:
        *owners, name = path.split(".")
        for part in owners:
            owner = getattr(owner, part)
        if name in _WORDS:
            function, names = _WORDS[name]
            known = getattr(self._calls, function)
            known.argtypes = [ctypes.c_char_p]
            number: int = known(str(value).encode())
            if number >= max(getattr(self._bindings, names)):
                raise FlagError(f"there is no {name} {value}")
            value = number
        setattr(owner, name, value.encode() if isinstance(value, str) else value)

    def open(self) -> bool:
        """Load the model; return whether that succeeded."""
        self._model = self._bindings.new_sd_ctx(ctypes.byref(self._context))
        return bool(self._model) and bool(self._bindings.sd_ctx_supports_image_generation(self._model))

    def draw(
        self, prompt: str, count: int, asked: dict[str, Value], given: list[RawImage], mask: RawImage | None
    ) -> list[RawImage]:
        """Draw. ``asked``: field of the library's parameters → value. Raises :class:`FlagError` for a wrong one.

        ``given``: images to begin with. The first is drawn over where ``mask`` is white, or everywhere.
        """
        picture = self._bindings.sd_img_gen_params_t()
        self._calls.sd_img_gen_params_init(ctypes.byref(picture))
        picture.negative_prompt = b""
        mine = {target.partition(".")[2]: value for target, value in self._given if target.startswith("picture.")}
        for name, value in (mine | asked).items():
            self._put(picture, name, value)
        picture.prompt, picture.batch_count = prompt.encode(), count
        lent = [self._lent(each) for each in given]
        over = self._lent(mask) if mask is not None else None
        if lent:
            picture.ref_images, picture.ref_images_count = (self._bindings.sd_image_t * len(lent))(*lent), len(lent)
            picture.init_image = lent[0]
        if lent and over is not None:
            picture.mask_image = over
        self._drawing = True
        try:
            drawn = self._bindings.generate_image(self._model, ctypes.byref(picture))
        finally:
            self._drawing = False
        if not drawn:
            return []
        try:
            return [self._taken(drawn[place]) for place in range(count) if drawn[place].data]
        finally:
            self._free(drawn)

    def _lent(self, picture: RawImage) -> Any:
        """Return the library's form of an image, whose pixels live as long as it does."""
        pixels = (ctypes.c_uint8 * len(picture.data)).from_buffer_copy(picture.data)
        return self._bindings.sd_image_t(picture.width, picture.height, picture.channels, pixels)

    def _taken(self, image: Any) -> RawImage:
        size = image.width * image.height * image.channel
        try:
            return RawImage(image.width, image.height, image.channel, ctypes.string_at(image.data, size))
        finally:
            self._free(ctypes.cast(image.data, ctypes.c_void_p))


def decode_image(data: bytes, channels: int, size: tuple[int, int] | None) -> RawImage:
    """Return the pixels of a PNG or JPEG, cut and scaled to ``size``; raises ValueError."""
    from PIL import Image, ImageOps  # noqa: PLC0415 - 60 ms that would delay the start

    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as file:
            image = file.convert({1: "L", 3: "RGB"}[channels])
    except (OSError, SyntaxError, Image.DecompressionBombError) as problem:
        raise ValueError("a picture cannot be read") from problem
    if size is not None and image.size != size:
        image = ImageOps.fit(image, size)
    return RawImage(image.width, image.height, channels, image.tobytes())


def encode_image(picture: RawImage, form: str, quality: int) -> bytes:
    """Return an image as ``png``, ``jpeg`` or ``webp``. ``quality`` from 0 to 100 only applies to the latter two."""
    from PIL import Image  # noqa: PLC0415 - 60 ms that would delay the start

    mode = {1: "L", 3: "RGB", 4: "RGBA"}[picture.channels]
    image = Image.frombytes(mode, (picture.width, picture.height), picture.data)
    file = io.BytesIO()
    if form == "png":
        image.save(file, form)
    else:
        image.convert("RGB").save(file, form, quality=quality)
    return file.getvalue()
