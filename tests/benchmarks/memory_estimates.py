"""What engines take, beside what was estimated before they were started. Megabytes (10⁶ bytes).

Each engine is started as a worker starts it, and reads a prompt of a whole batch, so that it has touched its buffers. It keeps no prompt
that no slot has (``--cache-ram 0``): that memory fills only with use. The models are synthetic ones, whose files take no space on the disk;
``--model DIR`` adds those in a folder: GGUF files, .bin files of whisper.cpp and ONNX folders.
"""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import tempfile
import urllib.request
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from gguf import GGMLQuantizationType as Type

from protocol.config.settings import Settings
from protocol.models.memory import HOST
from protocol.models.recipes import ModelSpec, OptionValue
from tests.benchmarks.measuring import until
from tests.support.models import synthetic_gguf as synthetic
from tests.support.models.synthetic_gguf import SyntheticModel
from tests.support.models.tiny_models import adapters, tiny_models
from tests.support.ports import free_port
from workers.backends.base import Backend
from workers.backends.registry import backend_class
from workers.engine.process_usage import proportional_of_tree, used_by_tree

_MEGABYTE = 1e6
_PATIENCE = 300.0
_BOUNDARY = "form"
_NO_PROMPTS = "--cache-ram 0"


class MemoryComparison(msgspec.Struct):
    """One engine."""

    recipe: str
    model: str
    options: str
    estimated: float
    measured: float

    @property
    def error(self) -> float:
        """By how much the estimate is too high; below zero if it is too low. A part of what was measured."""
        return self.estimated / self.measured - 1


class _Case(NamedTuple):
    model: SyntheticModel
    options: dict[str, OptionValue]
    type: str = "llm"
    draft: SyntheticModel | None = None
    whole: bool = False
    """The prompt fills the context: its scores are all tokens by all of a batch."""


_SMALL = synthetic.llama(layers=2, width=512, heads=8, kv_heads=8, inner=1536)
_CASES = {
    "llama, 1.2 GB": _Case(synthetic.llama(), {}),
    "llama, Q4_0, copied": _Case(synthetic.llama(kind=Type.Q4_0), {"ctx_size": 2048}),
    "llama, 8-bit cache": _Case(
        synthetic.llama(layers=4), {"ctx_size": 16_384, "slots": 1, "llamacpp_args": "-ctk q8_0 -ctv q8_0 -b 256"}
    ),
    "llama, not mapped": _Case(synthetic.llama(layers=4), {"llamacpp_args": "--no-mmap"}),
    "llama, without Flash Attention": _Case(
        synthetic.llama(layers=2, width=512, inner=1536), {"slots": 1, "llamacpp_args": "-fa off -b 512"}, whole=True
    ),
    "llama, with a draft model": _Case(synthetic.llama(layers=4), {"slots": 2}, draft=_SMALL),
    "llama, 262,144 tokens": _Case(
        synthetic.llama(layers=4, width=512, heads=8, kv_heads=8, inner=1536, vocabulary=262_144), {}
    ),
    "qwen3moe": _Case(synthetic.qwen3moe(), {}),
    "gemma3, windows": _Case(synthetic.gemma3(), {"ctx_size": 8192}),
    "deepseek2, latent attention": _Case(synthetic.deepseek2(), {"llamacpp_args": "-b 512"}),
    "mamba, recurrent": _Case(synthetic.mamba(), {"llamacpp_args": "-b 512"}),
    "bert": _Case(synthetic.bert(), {}, "embedding"),
}


def measure(folder: Path | None = None) -> list[MemoryComparison]:
    """Start the engines one after the other."""
    found = []
    with tempfile.TemporaryDirectory() as home:
        for name, case in _CASES.items():
            path = case.model.write(Path(home) / "model.gguf")
            options = dict(case.options)
            if case.draft is not None:
                draft = case.draft.write(Path(home) / "draft.gguf")
                options["llamacpp_args"] = f"{options.get('llamacpp_args', '')} -md {draft}"
            found.append(compare(name, home, "llamacpp", path, options, case.type, whole=case.whole))
        tiny = tiny_models() / "models"
        lora = {"llamacpp_args": f"--lora {adapters() / 'tiny-lora.gguf'}"}
        found.append(compare("tiny-chat with an adapter", home, "llamacpp", tiny / "tiny-chat.gguf", lora))
        vision, projector = (tiny / "tiny-vision" / name for name in ("tiny-vision.gguf", "mmproj-tiny.gguf"))
        found.append(compare("tiny-vision", home, "llamacpp", vision, {}, mmproj=str(projector)))
        for path in sorted(folder.iterdir()) if folder is not None else ():
            if path.suffix == ".gguf":
                kind = "embedding" if "minilm" in path.name.lower() else "llm"
                found.append(compare(path.stem, home, "llamacpp", path, {}, kind))
            elif path.suffix == ".bin":
                found.append(compare(path.stem, home, "whispercpp", path, {}, "audio"))
            elif (path / "genai_config.json").is_file():
                found.append(compare(path.name, home, "oga-cpu", path, {}))
    return found


def compare(
    name: str,
    home: str,
    recipe: str,
    path: Path,
    options: dict[str, OptionValue],
    kind: str = "llm",
    mmproj: str = "",
    whole: bool = False,
) -> MemoryComparison:
    """Start an engine with these options and measure it. ``home``: where it may write files."""
    shown = " ".join(f"{key}={value}" for key, value in options.items() if key != "llamacpp_args")
    arguments = str(options.get("llamacpp_args", ""))
    given = {"threads": 1, **options}
    if recipe == "llamacpp":
        given["llamacpp_args"] = f"{arguments} {_NO_PROMPTS}"
    spec = ModelSpec(name, name, recipe, "cpu", kind, str(path), mmproj, options=given)
    backend = backend_class(recipe)(spec, Settings(cache_dir=home))
    backend.model_facts = backend.examine()
    estimate = backend.memory()
    batch = _batch(backend)
    with _running(backend) as (pid, ask):
        if recipe == "llamacpp" and kind == "llm":
            tokens = estimate.context - 8 if whole else batch + 8
            ask("/completion", {"prompt": [9] * tokens, "n_predict": 2, "cache_prompt": False})
        elif kind == "embedding":
            ask("/v1/embeddings", {"input": [9] * (batch - 2)})
        elif recipe == "oga-cpu":
            ask("/v1/completions", {"prompt": "one two " * 200, "max_tokens": 8})
        else:
            ask("/inference", _sound(), f"multipart/form-data; boundary={_BOUNDARY}")
        mapped = min(_resident_of(pid, path), estimate.places[HOST].mapped)
        measured = used_by_tree(pid) + mapped if recipe == "llamacpp" else proportional_of_tree(pid)
    estimated = estimate.need()[HOST]
    words = " ".join(filter(None, [shown, arguments.replace(home, "").replace(str(adapters()), "")])) or "-"
    return MemoryComparison(recipe, name, words, round(estimated / _MEGABYTE, 1), round(measured / _MEGABYTE, 1))


def _sound() -> bytes:
    """Return a form with 30 s of noise."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(random.Random(1).randbytes(2 * 16_000 * 30))
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    return head.encode() + file.getvalue() + f"\r\n--{_BOUNDARY}--\r\n".encode()


def _batch(backend: Backend) -> int:
    words = backend.command(1)
    given = [int(words[index + 1]) for index, word in enumerate(words) if word in ("-b", "-ub")]
    return min([*given[-2:], 512])


@contextmanager
def _running(backend: Backend) -> Iterator[tuple[int, Any]]:
    """Start an engine; yield its pid, and a function that asks it."""
    port = free_port()
    backend.prepare()
    process = subprocess.Popen(
        backend.command(port),
        env=backend.environment(dict(os.environ)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def ask(path: str, body: dict[str, Any] | bytes | None = None, kind: str = "application/json") -> bytes:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {"Content-Type": kind, "Authorization": f"Bearer {backend.key}"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=_PATIENCE) as response:  # noqa: S310
            answer: bytes = response.read()
            return answer

    def is_ready() -> bool:
        assert process.poll() is None, f"the engine of {backend.spec.name} has ended"
        try:
            ask("/health")
        except OSError:
            return False
        return True

    try:
        until(is_ready, _PATIENCE)
        yield process.pid, ask
    finally:
        process.terminate()
        process.wait(_PATIENCE)


def _resident_of(pid: int, path: Path) -> int:
    """Return the bytes of a file that a process has mapped and are in memory."""
    found, inside = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            inside = words[-1] == os.path.realpath(path)
        elif inside and words[0] == "Rss:":
            found += int(words[1]) * 1024
    return found
