"""Our ``llama-server``: llama.cpp's own HTTP server from the xllamacpp wheel, with llama-server's command line.

Exit codes: 0 after SIGTERM (which ends it at once while it loads), 1 if the model cannot be loaded, 2 for an invalid
command line. It ends with the process that started it. Only the extension module is loaded: the package around it takes
another 45 ms for imports that a server does not need.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, Final

from workers.backends.flag_table import FlagError, Value
from workers.backends.llamacpp.flags import parse, version
from workers.engine_servers.shutdown_wait import open_parent_pidfd, wait_for_shutdown

_ENUMS: Final = {
    "reasoning_format": ("reasoning_format", "common_reasoning_format", "COMMON_REASONING_FORMAT_"),
    "flash_attn": ("flash_attn_type", "llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_"),
    "cache_type_k": ("cache_type_k", "ggml_type", "GGML_TYPE_"),
    "cache_type_v": ("cache_type_v", "ggml_type", "GGML_TYPE_"),
    "rope_scaling": ("rope_scaling_type", "llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_"),
    "numa": ("numa", "ggml_numa_strategy", "GGML_NUMA_STRATEGY_"),
    "pooling": ("pooling_type", "llama_pooling_type", "LLAMA_POOLING_TYPE_"),
}

_EXPERTS: Final = r"blk\.{}\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""Tensors of a layer's experts, as llama-server's ``--n-cpu-moe`` names them."""

_server_reference: Final[list[Any]] = []
"""The server, kept until the end of the process.

The library's own shutdown is never run: a server that is stopped before its loop runs waits forever. On a busy machine,
this happened to one in fifteen servers that were stopped as soon as they were healthy.
"""
_LOG: Final = "_Z15common_log_mainv"
"""``common_log_main()``, as C++ compilers name it in the library."""
_FLUSH: Final = "_Z16common_log_flushP10common_log"
"""``common_log_flush(common_log *)``: returns when the queue is written."""


def load_library() -> Any:
    """Load xllamacpp's extension module without the package around it; raises ImportError."""
    package = importlib.util.find_spec("xllamacpp")
    for folder in (package.submodule_search_locations or []) if package else []:
        for file in sorted(Path(folder).glob("xllamacpp*.so")):
            loader = importlib.machinery.ExtensionFileLoader("xllamacpp.xllamacpp", str(file))
            spec = importlib.util.spec_from_file_location(loader.name, file, loader=loader)
            if spec is not None:
                module = importlib.util.module_from_spec(spec)
                loader.exec_module(module)
                return module
    raise ImportError("xllamacpp is not installed")


def _lora(library: Any, parameters: Any, text: str, scaled: bool) -> None:
    adapters = list(parameters.lora_adapters)
    for item in text.split(","):
        path, _, scale = item.rpartition(":") if scaled else (item, "", "1")
        adapters.append(library.CommonAdapterLoraInfo(path or item, float(scale) if path else 1.0))
    parameters.lora_adapters = adapters


def _load_mode(library: Any, mapped: bool, locked: bool) -> Any:
    if not mapped:
        return library.llama_load_mode.LLAMA_LOAD_MODE_MLOCK if locked else library.llama_load_mode.LLAMA_LOAD_MODE_NONE
    if locked:
        return library.llama_load_mode.LLAMA_LOAD_MODE_MMAP_MLOCK
    return library.llama_load_mode.LLAMA_LOAD_MODE_MMAP


def apply_flags(library: Any, parameters: Any, given: list[tuple[str, Value]]) -> None:
    """Put a command line into llama.cpp's parameters; raises :class:`FlagError` for a value it does not take."""
    special: dict[str, Value] = {}
    for target, value in given:
        if target in ("<lora>", "<lora_scaled>"):
            try:
                _lora(library, parameters, str(value), scaled=target == "<lora_scaled>")
            except ValueError:
                raise FlagError(f"--lora-scaled cannot be {value}: PATH:SCALE is expected") from None
        elif target.startswith("<"):
            special[target.strip("<>")] = value
        else:
            *owners, name = target.split(".")
            owner = parameters
            for part in owners:
                owner = getattr(owner, part)
            setattr(owner, name, value)
    _apply_special(library, parameters, special)


def _apply_special(library: Any, parameters: Any, special: dict[str, Value]) -> None:
    threads = int(special.get("threads", 0))
    if threads <= 0:
        threads = max(1, len(os.sched_getaffinity(0)))
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = int(special.get("threads_batch", 0)) or threads
    if "timeout" in special:
        parameters.timeout_read = parameters.timeout_write = int(special["timeout"])
    if "mmap" in special or "mlock" in special:
        mapped, locked = bool(special.get("mmap", True)), bool(special.get("mlock", False))
        parameters.load_mode = _load_mode(library, mapped, locked)
    if special.get("rerank"):
        parameters.embedding = True
        special["pooling"] = "rank"
    _apply_model_flags(library, parameters, special)
    _apply_texts(parameters, special)
    for name, (target, family, prefix) in _ENUMS.items():
        if name in special:
            member = f"{prefix}{special[name]!s}".upper().replace("-", "_")
            setattr(parameters, target, getattr(getattr(library, family), member))


def _apply_model_flags(library: Any, parameters: Any, special: dict[str, Value]) -> None:
    if "rope_scale" in special:
        parameters.rope_freq_scale = 1.0 / float(special["rope_scale"])
    if "n_cpu_moe" in special:
        layers = range(int(special["n_cpu_moe"]))
        parameters.tensor_buft_overrides = ",".join(f"{_EXPERTS.format(layer)}=CPU" for layer in layers)
    if "grammar" in special:
        kind = library.common_grammar_type.COMMON_GRAMMAR_TYPE_USER
        parameters.sampling.grammar = library.CommonGrammar(kind, str(special["grammar"]))
    if "draft_model" in special:
        parameters.speculative.draft.mparams.path = str(special["draft_model"])
        special.setdefault("spec_type", "draft-simple")  # the library does not choose a type itself
    if "spec_type" in special:
        family = library.common_speculative_type
        members = (name.upper().replace("-", "_") for name in str(special["spec_type"]).split(","))
        parameters.speculative.types = [getattr(family, f"COMMON_SPECULATIVE_TYPE_{member}") for member in members]


def _apply_texts(parameters: Any, special: dict[str, Value]) -> None:
    if "host" in special:
        parameters.hostnames = [str(special["host"])]
    if "alias" in special:
        parameters.model_alias = {name.strip() for name in str(special["alias"]).split(",")}
    if "slot_save_path" in special:
        parameters.slot_save_path = str(special["slot_save_path"]).rstrip("/") + "/"
    if "chat_template_file" in special:
        try:
            parameters.chat_template = Path(str(special["chat_template_file"])).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise FlagError(f"--chat-template-file cannot be read: {problem}") from None


def main(words: list[str]) -> int:
    """Serve until a signal; return the exit code."""
    try:
        parent = open_parent_pidfd()
        given = parse(words)
        if not {"model.path", "<version>"} & {target for target, _ in given}:
            sys.stderr.write("llama-server: -m is missing\n")
            return 2
        library = load_library()
        if ("<version>", True) in given:
            sys.stdout.write(f"llama-server over xllamacpp, llama.cpp {version()}\n")
            return 0
        parameters = library.CommonParams()
        apply_flags(library, parameters, given)
        parameters.fit_params = False  # it would read the model twice, to find out what lemonbus has decided
        parameters.video_ffmpeg_bin_dir = os.devnull  # no program decodes what a client sent
        key = os.environ.pop("LLAMA_API_KEY", "")
        if key:
            parameters.api_keys = [key]
    except FlagError as problem:
        sys.stderr.write(f"llama-server: {problem}\n")
        return 2
    except (ImportError, ProcessLookupError) as problem:
        sys.stderr.write(f"llama-server: {problem}\n")
        return 1
    try:
        _server_reference.append(library.Server(parameters))
    except Exception as problem:  # noqa: BLE001 - any error here means that the model cannot be loaded
        flush_log(library.__file__)
        sys.stderr.write(f"llama-server: cannot load the model: {problem}\n")
        return 1
    wait_for_shutdown(parent)
    return 0


def flush_log(library: str) -> bool:
    """Wait until llama.cpp has written its log; return False if the extension module with this path has no such functions.

    A separate thread writes it, and a process that ends loses what is queued: for example the reason why a model cannot
    be loaded. The wheel has no function for this, but the library in it has.
    """
    import ctypes  # noqa: PLC0415 - for a model that cannot be loaded; every worker also has this module

    try:
        native = ctypes.CDLL(library)
        log, flush = native[_LOG], native[_FLUSH]
    except (OSError, AttributeError):
        return False
    log.argtypes, log.restype = [], ctypes.c_void_p
    flush.argtypes, flush.restype = [ctypes.c_void_p], None
    flush(log())
    return True
