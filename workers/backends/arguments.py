"""Engine arguments: how they are split, which flags lemonbus sets itself, and how many slots they request. Pure.

llama-server reads ``--ctx_size`` as ``--ctx-size``, so names are compared in that form.  ``-np`` is allowed; it also
sets how many requests the scheduler sends at once.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from protocol.failures import invalid
from protocol.models.recipes import OptionValue

PARALLEL: Final = ("-np", "--parallel")
OVERRIDES: Final = ("--override-kv",)
LORA: Final = ("--lora", "--lora-scaled")
SLOT_SAVE_PATH: Final = ("--slot-save-path",)
DRAFT: Final = ("-md", "--model-draft", "--spec-draft-model", "--spec-type")
CACHE_RAM: Final = ("-cram", "--cache-ram")
MAX_SLOTS: Final = 256
MAX_THREADS: Final = 1_024

FORBIDDEN_LLAMACPP_FLAGS: Final[dict[str, str]] = {
    **dict.fromkeys(("-m", "--model", "-mu", "--model-url", "-dr", "--docker-repo"), "-m"),
    **dict.fromkeys(("-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-hft", "--hf-token"), "-hf"),
    **dict.fromkeys(("-hfv", "-hfrv", "--hf-repo-v", "-hffv", "--hf-file-v"), "-hf"),
    **dict.fromkeys(("--models-dir", "--models-preset", "--models-max", "--models-autoload"), "-m"),
    **dict.fromkeys(("-c", "--ctx-size"), "--ctx-size"),
    **dict.fromkeys(("-ngl", "--gpu-layers", "--n-gpu-layers"), "-ngl"),
    **dict.fromkeys(("--jinja", "--no-jinja"), "--jinja"),
    **dict.fromkeys(
        ("-mm", "--mmproj", "-mmu", "--mmproj-url", "--mmproj-auto", "--no-mmproj", "--no-mmproj-auto"), "--mmproj"
    ),
    **dict.fromkeys(("--embedding", "--embeddings"), "--embeddings"),
    **dict.fromkeys(("--rerank", "--reranking"), "--reranking"),
    **dict.fromkeys(("--host", "--port", "--reuse-port", "--api-prefix", "--path", "--no-slots"), ""),
    **dict.fromkeys(("-a", "--alias", "--api-key", "--api-key-file", "--ssl-key-file", "--ssl-cert-file"), ""),
}
"""Flag → the name under which the documents forbid it (empty: the documents do not mention it)."""


def split_args(args: str, option: str = "llamacpp_args") -> list[str]:
    """Split a command line as a shell does; raises ``invalid_request`` for an open quote or a NUL."""
    if "\0" in args:
        raise invalid(f"{option} must not contain NUL", option)
    try:
        return shlex.split(args)
    except ValueError as problem:
        raise invalid(f"{option} cannot be split into words: {problem}", option) from None


def check_forbidden_flags(option: str, forbidden: Sequence[str], args: str) -> list[str]:
    """Return the words of an option; raises ``invalid_request`` naming a flag that lemonbus sets."""
    words = split_args(args, option)
    for word in words:
        flag = flag_of(word)
        if flag in forbidden:
            raise invalid(f"{option} must not contain {flag}: lemonbus sets it", option)
    return words


def flag_of(word: str) -> str:
    """Return the flag that llama-server would see in a word: without ``=value``, ``_`` as ``-``."""
    name = word.split("=", 1)[0]
    return name.replace("_", "-") if name.startswith("--") else name


def check_llamacpp_args(args: str) -> list[str]:
    """Return the words of ``llamacpp_args``; raises ``invalid_request`` naming a flag that lemonbus sets."""
    words = split_args(args)
    for word in words:
        flag = flag_of(word)
        if flag in FORBIDDEN_LLAMACPP_FLAGS:
            documented = FORBIDDEN_LLAMACPP_FLAGS[flag]
            alias = f" (the same as {documented})" if documented and documented != flag else ""
            raise invalid(f"llamacpp_args must not contain {flag}{alias}: lemonbus sets it", "llamacpp_args")
    _parallel(words)
    return words


def value_of(words: list[str], names: tuple[str, ...]) -> str | None:
    """Return the value of the last of ``names`` in the words, which llama-server uses; None if absent."""
    found: str | None = None
    for index, word in enumerate(words):
        if flag_of(word) in names:
            found = words[index + 1] if index + 1 < len(words) else ""
    return found


def _parallel(words: list[str]) -> int | None:
    given = value_of(words, PARALLEL)
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:6]) <= MAX_SLOTS:
        raise invalid(f"llamacpp_args: -np needs a number from 1 to {MAX_SLOTS}, not {given!r}", "llamacpp_args")
    return int(given)


def slots_of(options: Mapping[str, OptionValue], default: int) -> int:
    """Return how many requests run at once: ``-np`` in the arguments, else the option, else ``default``."""
    from_arguments = _parallel(split_args(str(options.get("llamacpp_args", ""))))
    return from_arguments or int(options.get("slots", 0)) or default
