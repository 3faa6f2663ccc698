"""Reads Ollama's store: ``manifests/HOST/NAMESPACE/MODEL/TAG`` (or ``manifests-v2``) and ``blobs/sha256-…``.

A digest must be one, and its blob a file of the store, of the size that the manifest says; the hash of a small blob is
checked, that of a model file is not. A link that leads out of the store is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from protocol import small_files
from protocol.failures import DECODE_ERRORS, LemonbusError, printable
from supervisor.imports.model_files import file_problem, refuse

_MANIFESTS: Final = ("manifests-v2", "manifests")
_LIST: Final = "application/vnd.ollama.manifest.list.v2+json"
_LAYER: Final = "application/vnd.ollama.image."
_DIGEST: Final = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")
_OTHER_RUNNER: Final = "mlx"
"""Of a manifest for several runners, the first one for another runner is taken: that is a GGUF file."""
_DEFAULT_HOST, _DEFAULT_NAMESPACE, _LATEST = "registry.ollama.ai", "library", "latest"
_FILE_KINDS: Final = ("model", "projector", "adapter")
_TEXT_KINDS: Final = ("params", "system")
_DEPTH: Final = 4


class Layer(msgspec.Struct, frozen=True, rename={"media_type": "mediaType"}):
    """A blob of a model, and what it is."""

    media_type: str
    digest: str
    size: Annotated[int, Meta(ge=0)] = 0

    @property
    def kind(self) -> str:
        """``model``, ``params`` … Parameters of the media type do not count."""
        return self.media_type.partition(";")[0].removeprefix(_LAYER)


class OllamaManifest(msgspec.Struct, frozen=True, rename={"media_type": "mediaType"}):
    """A manifest, or a list of them: one a runner."""

    media_type: str = ""
    layers: list[Layer] = []
    manifests: list[OllamaManifest] = []
    digest: str = ""
    """Of an entry of a list: the blob with the manifest."""
    runner: str = ""


class OllamaModel(msgspec.Struct, frozen=True):
    """A model of the store. ``problem``: why it cannot be used; empty: it can."""

    name: str
    """As Ollama's commands show it, without the tag ``latest``."""
    files: dict[str, list[Path]] = {}
    """Kind of a layer → its GGUF files."""
    params: dict[str, Any] = {}
    system: str = ""
    licence: str = ""
    """The first line of its licence."""
    others: list[str] = []
    """Kinds of further layers."""
    problem: str = ""


class _Problem(NamedTuple):
    text: str


def default_folder(environment: dict[str, str]) -> Path:
    """Return where Ollama's models are: where ``OLLAMA_MODELS`` says, else in the home directory, else where its service has them."""
    if environment.get("OLLAMA_MODELS"):
        return Path(environment["OLLAMA_MODELS"])
    home = Path.home() / ".ollama" / "models"
    service = Path("/usr/share/ollama/.ollama/models")
    return service if not home.exists() and service.exists() else home


def read_store(folder: Path) -> list[OllamaModel]:
    """Return the models of a store, by name; raises ``invalid_request`` if the folder is none."""
    root = next((path for path in (folder, folder / "models", folder / ".ollama" / "models") if _is_store(path)), None)
    if root is None:
        refuse(folder, "is not the folder of Ollama's models: it has no manifests and blobs")
    found: dict[str, OllamaModel] = {}
    for manifests in _MANIFESTS:
        for path in _manifest_files(root / manifests):
            name = _name_of(path.relative_to(root / manifests).parts)
            if name not in found:
                found[name] = _model(root, path, name)
    return [found[name] for name in sorted(found)]


def _is_store(path: Path) -> bool:
    return (path / "blobs").is_dir() and any((path / name).is_dir() for name in _MANIFESTS)


def _manifest_files(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    try:
        items = sorted(folder.iterdir())
    except OSError:
        return
    for item in items:
        if depth == 1:
            if not item.is_dir() and not item.name.startswith("."):
                yield item
        elif item.is_dir():
            yield from _manifest_files(item, depth - 1)


def _name_of(parts: tuple[str, ...]) -> str:
    host, namespace, model, tag = parts
    name = model if tag == _LATEST else f"{model}:{tag}"
    if (host, namespace) == (_DEFAULT_HOST, _DEFAULT_NAMESPACE):
        return name
    return f"{namespace}/{name}" if host == _DEFAULT_HOST else f"{host}/{namespace}/{name}"


def _model(root: Path, path: Path, name: str) -> OllamaModel:
    if not all(_NAME.fullmatch(part) for part in re.split("[/]", name)):
        return OllamaModel(printable(name), problem="its name is not one of Ollama's")
    try:
        return _read_model(root, _chosen(root, _manifest(root, path)), name)
    except LemonbusError as problem:
        return OllamaModel(name, problem=str(problem))


def _manifest(root: Path, path: Path) -> OllamaManifest:
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        refuse(path, "the manifest is a link that leads out of the store")
    return _decoded(path)


def _decoded(path: Path) -> OllamaManifest:
    try:
        return msgspec.json.decode(small_files.read_small_file(path), type=OllamaManifest)
    except OSError as problem:
        refuse(path, f"the manifest cannot be read: {problem.strerror}")
    except DECODE_ERRORS as problem:
        refuse(path, f"the manifest is broken: {printable(str(problem), 200)}")


def _chosen(root: Path, manifest: OllamaManifest) -> OllamaManifest:
    """Return the manifest for llama.cpp, if there are several."""
    if manifest.media_type != _LIST:
        return manifest
    found = next((each for each in manifest.manifests if each.runner.lower() != _OTHER_RUNNER), None)
    if found is None:
        refuse(root, "the model is only for Ollama's runner for Apple's processors")
    return found if found.layers else _decoded(_checked_blob(root, Layer("", found.digest)))


def _read_model(root: Path, manifest: OllamaManifest, name: str) -> OllamaModel:
    files: dict[str, list[Path]] = {}
    texts: dict[str, bytes] = {}
    others: list[str] = []
    for layer in manifest.layers:
        if layer.kind in _FILE_KINDS:
            path = _blob(root, layer)
            if problem := file_problem(path, layer.size):
                return OllamaModel(name, problem=problem)
            files.setdefault(layer.kind, []).append(path)
        elif layer.kind in (*_TEXT_KINDS, "license"):
            texts.setdefault(layer.kind, small_files.read_small_file(_checked_blob(root, layer)))
        else:
            others.append(layer.kind)
    try:
        params = msgspec.json.decode(texts.get("params", b"{}"), type=dict[str, Any])
        system = texts.get("system", b"").decode()
    except DECODE_ERRORS as problem:
        return OllamaModel(name, problem=f"its parameters or its system prompt are broken: {printable(str(problem))}")
    lines = texts.get("license", b"").decode(errors="replace").split("\n")
    licence = next((printable(line.strip(), 100) for line in lines if line.strip()), "")
    return OllamaModel(name, files=files, params=params, system=system, licence=licence, others=sorted(set(others)))


def _blob(root: Path, layer: Layer) -> Path:
    found = _DIGEST.fullmatch(layer.digest)
    if found is None:
        refuse(root, f"{printable(layer.digest, 80)!r} is not a digest")
    path = root / "blobs" / f"sha256-{found[1].lower()}"
    if Path(os.path.realpath(path)).parent != Path(os.path.realpath(root / "blobs")):
        refuse(path, "the blob is a link that leads out of the store")
    return path


def _checked_blob(root: Path, layer: Layer) -> Path:
    """Return the path of a small blob with the hash that its digest says."""
    path = _blob(root, layer)
    try:
        digest = hashlib.sha256(small_files.read_small_file(path)).hexdigest()
    except OSError as problem:
        refuse(path, f"cannot be read: {problem.strerror}")
    if digest != path.name.removeprefix("sha256-"):
        refuse(path, "its content does not have this digest")
    return path
