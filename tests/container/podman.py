"""Podman with a store of its own in a folder, which leaves nothing on the machine."""

from __future__ import annotations

import resource
import shutil
import subprocess
from pathlib import Path
from typing import Self

from tests.bare import pipconfig, root
from tests.bare.pipconfig import Reach

PROCESSES = 1024
_SCRIPT = """\
#!/bin/sh
# crun refuses to start where both versions of control groups are mounted: podman does not see the second one.
export CONTAINERS_CONF={folder}/containers.conf
exec unshare --mount sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null
exec podman --root {folder}/store --runroot {folder}/run --cgroup-manager cgroupfs "$@"' podman "$@"
"""
_PACKAGES = {
    "podman": "podman",
    "podman-compose": "podman-compose",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
}
"""Programs, and the packages that have them. Podman itself comes without those that make networks."""


def missing() -> str:
    """Return why no container can be run here, ``""`` if one can. Installs podman if it is available."""
    if problem := root.missing():
        return problem
    for program, package in _PACKAGES.items():
        if not shutil.which(program) and not root.installed(package):
            return f"{package} is not available (apt-get install {package})"
    return ""


class Podman:
    """Use it as a context manager: leaving it ends and removes all containers of its folder."""

    def __init__(self, folder: Path, reach: Reach) -> None:
        """Start nothing yet. ``reach``: how this machine reaches the package index."""
        self.program = folder / "podman"
        self.program.write_text(_SCRIPT.format(folder=folder))
        self.program.chmod(0o755)
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        (folder / "containers.conf").write_text(
            # Podman's defaults may be above what root may set here.
            f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc={PROCESSES}:{PROCESSES}"]\n'
            # The other backend leaves a name server running.
            f'[network]\nnetwork_backend = "cni"\nnetwork_config_dir = "{folder}/networks"\n'
        )
        mounts = pipconfig.write_config(folder / "pip.conf", reach)
        self.index = [word for path, place in mounts.items() for word in ("--volume", f"{path}:{place}:ro")]
        """Words of ``build`` and ``run`` that tell pip how to reach the package index."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.code("rm", "--all", "--force", "--time", "5")
        self.code("network", "prune", "--force")
        self.code("volume", "prune", "--force")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command, and do not wait for it."""
        return subprocess.Popen(
            [self.program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def code(self, *words: str) -> int:
        """Run a command; return its exit status."""
        return self._run(words).returncode

    def refused(self, *words: str) -> tuple[int, str]:
        """Run a command that may fail; return its exit status, and what it wrote on standard error."""
        done = self._run(words)
        return done.returncode, done.stderr

    def run(self, *words: str) -> str:
        """Run a command that must succeed; return what it prints on standard output, without the last newline."""
        done = self._run(words)
        assert not done.returncode, f"podman {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def logs(self, name: str) -> list[str]:
        """Return the lines that a container has written."""
        done = self._run(("logs", name))
        return (done.stdout + done.stderr).splitlines()

    def _run(self, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        command = [self.program, *words]
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600
        )
