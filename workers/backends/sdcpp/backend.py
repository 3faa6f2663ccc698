"""stable-diffusion.cpp: images, through the user's or a release's ``sd-server``, or ours over the Python package."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Final

from protocol.failures import Code, Failure
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.recipes import Provision, RecipeDescriptor
from protocol.runtime import logs
from protocol.wire import form_data
from workers.backends.engine_facts import EngineFacts, EngineProgress, ModelFacts
from workers.backends.engine_request import EngineRequest
from workers.backends.flag_table import FlagTable
from workers.backends.package_version import package_version
from workers.backends.program_backend import SingleSlotBackend
from workers.backends.recipe import Recipe
from workers.backends.sdcpp import flags, image_request
from workers.backends.sdcpp.descriptor import DESCRIPTOR, EDITS, SUFFIXES, identify
from workers.backends.sdcpp.parts import identify_part, may_have
from workers.files import gguf, safetensors

PROCESS_BYTES: Final = 40 * 1024**2
NETWORK_BYTES_PER_PIXEL: Final = 2_200
DECODER_BYTES_PER_PIXEL: Final = 6_656
"""As stable-diffusion.cpp logs them for Stable Diffusion 1.5 and a picture of 512 by 512."""
TILE_BYTES: Final = 416 * 1024**2
"""The decoder's, if it decodes a picture in tiles."""
_MODULE: Final = "workers.engine_servers.sd_server"
_ZIP: Final = b"PK\x03\x04"
"""The first bytes of PyTorch's own checkpoints, which stable-diffusion.cpp also reads.

No quick check shows whether one is complete.
"""
_MODELS: Final = EngineRequest("GET", "/v1/models")
"""sd-server listens once its model is loaded, and reports nothing about itself."""
_LINE: Final = re.compile(rb"\[(DEBUG|INFO|WARN|ERROR) *\] +")
_BAR: Final = re.compile(rb"\| \d+/\d+ - ")
_STEPS: Final = re.compile(rb"\| (\d{1,6})/(\d{1,6}) - [\d.]+(?:it/s|s/it)")
"""Its progress bars while it draws. Those of the loading model have another unit."""
_LEVELS: Final = {b"DEBUG": "trace", b"INFO": "debug", b"WARN": "warning", b"ERROR": "error"}
"""It logs every step of every image at INFO, and the prompt at DEBUG."""


class SdCppBackend(SingleSlotBackend):
    """One image model behind one sd-server."""

    descriptor: ClassVar[RecipeDescriptor] = DESCRIPTOR
    hidden: ClassVar[tuple[str, ...]] = ("STABLE_DIFFUSION_CPP_", flags.KEY)
    program_setting: ClassVar[str] = "sd_server"
    arguments_option: ClassVar[str] = "sdcpp_args"
    key_variable: ClassVar[str] = flags.KEY
    flag_table: ClassVar[FlagTable] = flags.FLAGS
    program = "sd-server"

    def _executable(self) -> list[str] | None:
        if self._is_own_server:
            return [sys.executable, "-m", _MODULE]
        if self._program.provision is Provision.USER:
            found = shutil.which(self._user_program)
            return [found] if found else None
        installation = self._installation()
        return [str(installation.program)] if installation and installation.program.is_file() else None

    @property
    def _is_own_server(self) -> bool:
        """Whether it is our own program that runs."""
        package = self._program.requires
        return bool(package) and self._installation() is None and importlib.util.find_spec(package) is not None

    def _read_arguments(self) -> None:
        self.flag_table.parse(self._words)

    def examine(self) -> ModelFacts:
        """See :meth:`Backend.examine`."""
        named = [(flag.lstrip("-"), file) for flag, file in pairwise(self._words) if flag in flags.PARTS]
        size = 0
        for part, file in [("", self.spec.path), *self.spec.parts.items(), *named]:
            size += _whole_size(part, Path(file))
        return ModelFacts(size)

    def memory(self) -> MemoryEstimate:
        """See :meth:`Backend.memory`: the model, and what a picture of the usual size takes in its network and its decoder."""
        pixels = int(self._option("width")) * int(self._option("height"))
        decoder = (
            TILE_BYTES if self.flag_table.last_of(self._words, "--vae-tiling") else DECODER_BYTES_PER_PIXEL * pixels
        )
        parts = {
            "weights": self.model_facts.size,
            "compute": NETWORK_BYTES_PER_PIXEL * pixels + decoder,
            "process": PROCESS_BYTES,
        }
        return MemoryEstimate({HOST: PlaceNeed(sum(parts.values()), lazy=parts["compute"])}, parts=parts)

    def command(self, port: int) -> list[str]:
        """See :meth:`Backend.command`. The user's arguments come last, so they take precedence."""
        words = self._start_command()
        parts = [word for part, file in self.spec.parts.items() for word in (flags.PART_FLAGS[part], file)]
        parted = any(word in flags.TEXT_ENCODER_FLAGS for word in (*parts, *self._words))
        words += ["--listen-ip", "127.0.0.1", "--listen-port", str(port)]
        words += ["--diffusion-model" if parted else "-m", self.spec.path, *parts]
        words += ["--steps", str(self._option("steps")), "--cfg-scale", str(self._option("cfg_scale"))]
        words += ["-W", str(self._option("width")), "-H", str(self._option("height"))]
        method, shift = self.spec.options.get("sampling_method", ""), self.spec.options.get("flow_shift")
        words += ["--sampling-method", str(method)] if method not in ("", "default") else []
        words += ["--flow-shift", str(shift)] if shift else []
        threads = int(self._option("threads"))
        if threads:
            words += ["-t", str(threads)]
        if logs.trace_enabled():
            words += ["-v"]
        return words + self._words

    def parse(self, line: bytes) -> tuple[str, str]:
        """See :meth:`Backend.parse`. Its progress bars are not lines."""
        found = _LINE.match(line)
        if found is not None:
            return _LEVELS[found[1]], line[found.end() :].decode("utf-8", "replace")
        return "debug" if _BAR.search(line) else "info", line.decode("utf-8", "replace")

    def progress(self, line: bytes) -> EngineProgress | None:
        """See :meth:`Backend.progress`: a bar for each step, and for each tile of a large image."""
        found = _STEPS.search(line)
        return EngineProgress(int(found[1]), int(found[2]), "steps") if found else None

    def health(self) -> EngineRequest:
        """See :meth:`Backend.health`."""
        return _MODELS

    def warm_up(self) -> None:
        """None: the smallest image takes seconds, and some models do not draw small ones."""

    def about(self) -> EngineRequest:
        """See :meth:`Backend.about`."""
        return _MODELS

    def facts(self, answer: bytes) -> EngineFacts:
        """See :meth:`Backend.facts`."""
        if b'"data"' not in answer:
            raise ValueError("it lists no models")
        installation = self._installation()
        version = (
            installation.record.version
            if installation
            else package_version(flags.PACKAGE)
            if self._is_own_server
            else ""
        )
        return EngineFacts(self.slots, 0, version)

    def busy(self) -> EngineRequest:
        """See :meth:`Backend.busy`. Not used: sd-server cannot be interrupted, so its answers are read to the end."""
        return _MODELS

    def processing(self, _answer: bytes) -> int:
        """See :meth:`Backend.processing`."""
        return 0

    def request(self, endpoint: str, query: str, body: bytes, stream: bool) -> EngineRequest:
        """See :meth:`Backend.request`."""
        self.refuse_unserved(endpoint)
        if query or stream:
            raise Failure(Code.UNSUPPORTED, "sd-server does not stream pictures").raised()
        if endpoint == EDITS:
            form = image_request.engine_form(body)
            kind = f"{form_data.MEDIA_TYPE}; boundary={form_data.boundary_from_body(form)}"
            return EngineRequest("POST", f"/v1/{endpoint}", form, content_type=kind)
        return EngineRequest("POST", f"/v1/{endpoint}", image_request.engine_body(body))


def _whole_size(part: str, path: Path) -> int:
    """Return the size of a file in bytes, after a look at its header; raises ValueError that names the part, if it is not the model itself."""
    try:
        size = path.stat().st_size
        check_whole(path)
    except (OSError, ValueError) as problem:
        if not part:
            raise
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        missing = isinstance(problem, FileNotFoundError)
        raise ValueError(f"its {part} {'is missing' if missing else f'cannot be read: {reason}'}") from None
    return size


def check_whole(path: Path) -> None:
    """Raise ValueError for a file whose header is not that of a complete model; OSError if it is unreadable."""
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == gguf.MAGIC or path.suffix.lower() == ".gguf":
        gguf.read(path)
    elif magic != _ZIP:
        safetensors.check(path)


RECIPE: Final = Recipe(DESCRIPTOR, SdCppBackend, flags.FLAGS, None, identify, SUFFIXES, identify_part, may_have)
