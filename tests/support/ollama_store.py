"""A store of Ollama as its server writes one: manifests by name, and blobs by digest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

_TYPE: Final = "application/vnd.ollama.image."
MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG: Final = "application/vnd.docker.container.image.v1+json"


class OllamaStore:
    """A folder with ``manifests`` and ``blobs``. Model files are links to the given ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = folder / "blobs"
        self.blobs.mkdir(parents=True)

    def add(
        self,
        name: str,
        model: Path,
        *,
        host: str = "registry.ollama.ai/library",
        params: dict[str, Any] | None = None,
        more: dict[str, bytes | Path] | None = None,
    ) -> list[dict[str, Any]]:
        """Add the model NAME:TAG; return the layers of its manifest. ``more``: kind of a layer → its content."""
        layers = [self.layer(f"{_TYPE}model", model)]
        layers += [self.layer(_TYPE + kind, content) for kind, content in (more or {}).items()]
        if params is not None:
            layers.append(self.layer(f"{_TYPE}params", json.dumps(params).encode()))
        self.write(name, self.manifest(layers), host=host)
        return layers

    def manifest(self, layers: list[dict[str, Any]]) -> dict[str, Any]:
        config = self.layer(CONFIG, json.dumps({"model_format": "gguf", "os": "linux"}).encode())
        return {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}

    def write(self, name: str, manifest: Any, *, host: str = "registry.ollama.ai/library") -> Path:
        """Write a manifest as it is given; return its path."""
        model, _, tag = name.partition(":")
        path = self.folder / "manifests" / host / model / (tag or "latest")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
        return path

    def layer(self, media_type: str, content: bytes | Path) -> dict[str, Any]:
        """Store a blob; return what a manifest says about it."""
        data = content.read_bytes() if isinstance(content, Path) else content
        digest = hashlib.sha256(data).hexdigest()
        blob = self.blobs / f"sha256-{digest}"
        if not blob.exists():
            blob.write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}
