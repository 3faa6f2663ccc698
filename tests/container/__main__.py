"""``python -m tests.container``: builds the image of deploy/container and runs it as docs/container.md says.

The base is a minimal Debian that mmdebstrap makes here, so no registry is asked. It needs root and Debian's packages.
Without permission, it says so in one line and exits 0.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bare import pipconfig
from tests.bare.root import STALE
from tests.container import compose, image, pod, podman
from tests.container.podman import Podman

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 450_000_000
LEFT_OUT = ("man", "locale", "doc")


def main() -> int:
    """Build and run the image; return 0 if all went well, or if nothing can be run here."""
    problem = podman.missing()
    if problem:
        print(f"container: not run: {problem}", flush=True)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # containers are removed then as well
    with tempfile.TemporaryDirectory(prefix="lemonbus-container-", dir="/tmp") as folder:
        began = time.monotonic()
        archive = Path(folder) / "base.tar"
        if problem := _make_base(archive):
            print(f"container: not run: {problem}", flush=True)
            return 0
        with Podman(Path(folder), pipconfig.of_host()) as machine:
            try:
                machine.run("import", str(archive), "lemonbus-base")
                based = time.monotonic()
                _build(machine)
                built = time.monotonic()
                answer = image.answers_with_a_model_of_the_catalogue(machine)
                print(
                    f"container: a base in {based - began:.0f} s, the image in {built - based:.0f} s, and {answer!r}"
                    f" {time.monotonic() - built:.0f} s later, with the download of the model",
                    flush=True,
                )
                image.check(machine)
                pod.check(machine, Path(folder), ROOT / "deploy" / "kubernetes" / "lemonbus.yaml")
                compose.check(machine, Path(folder), ROOT / "deploy" / "container" / "compose.yaml")
            except AssertionError as wrong:
                print(f"container: {wrong}", flush=True)
                return 1
    return 0


def _make_base(archive: Path) -> str:
    """Make an archive like the image debian:bookworm-slim; return why that failed, ``""`` if it did not."""
    left_out = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in LEFT_OUT]
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--aptopt={STALE}", *left_out, "bookworm", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"mmdebstrap failed: {(done.stderr.strip().splitlines() or ['nothing said'])[-1]}" * bool(done.returncode)


def _build(machine: Podman) -> None:
    """Build the image as its first lines say, on our base; it is small, and has no compiler."""
    where = ["--isolation", "chroot", "--network", "host", "--layers=false", *machine.index]
    base = ["--build-arg", "BASE=localhost/lemonbus-base", "--format", "docker"]
    machine.run("build", *where, *base, "-f", str(ROOT / "deploy/container/Dockerfile"), "-t", "lemonbus", str(ROOT))
    size = int(machine.run("image", "inspect", "--format", "{{.Size}}", "lemonbus"))
    print(f"container: the image has {size / 1e6:.0f} MB", flush=True)
    assert size <= MOST_BYTES, f"the image has {size:,} bytes; at most {MOST_BYTES:,} are allowed"


if __name__ == "__main__":
    sys.exit(main())
