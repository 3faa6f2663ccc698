"""``python -m deploy.packages.wheelhouse WHEEL EXTRAS FOLDER``: all wheels of an installation, for machines without a network.

The folder gets the wheels for the Python that runs this, ``requirements.txt`` with their sha256, and ``sbom.cdx.json``, a bill of
materials in the form of CycloneDX. Whatever else was in it is removed. It needs the package ``cyclonedx-bom``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def main(wheel: Path, extras: str, folder: Path) -> None:
    """Fill the folder; raise ``CalledProcessError`` if pip fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _python("pip", "wheel", "-qq", "--wheel-dir", str(folder), f"{wheel}[{extras}]")
    (folder / "requirements.txt").write_text(requirements(folder, extras))
    with tempfile.TemporaryDirectory() as made:
        environment = str(Path(made) / "environment")
        _python("venv", "--without-pip", environment)
        offline = ["--no-index", "--no-compile", "--find-links", str(folder), "--require-hashes"]
        install = ["install", "-qq", *offline, "-r", str(folder / "requirements.txt")]
        _python("pip", "--python", environment, *install)
        described = ["--output-reproducible", "--output-format", "JSON", "--output-file", str(folder / "sbom.cdx.json")]
        _python("cyclonedx_py", "environment", *described, f"{environment}/bin/python")


def _python(*words: str) -> None:
    subprocess.run([sys.executable, "-m", *words], env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}, check=True)


def requirements(folder: Path, extras: str) -> str:
    """Return one line a wheel: the only version, and the only file, that pip may install."""
    lines = []
    for file in sorted(folder.glob("*.whl")):
        name, version, *_ = file.name.split("-")
        wanted = f"{name}[{extras}]" if name == "lemonbus" and extras else name
        lines.append(f"{wanted}=={version} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n")
    return "".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
