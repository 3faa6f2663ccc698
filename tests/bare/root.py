"""A bare Debian in a folder: made by mmdebstrap, entered by an unprivileged user in namespaces that end with the command."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from tests.bare.pipconfig import Reach, write_config

USER = "newcomer"
HOME = f"/home/{USER}"
CHECKOUT = f"{HOME}/lemonbus"
PATH = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
STALE = 'Acquire::Check-Valid-Until "false"'
"""A mirror that is a snapshot has expired lists; their signature is still checked."""


def missing() -> str:
    """Return why no root can be made here, ``""`` if one can. Installs mmdebstrap if it is available."""
    if os.geteuid():
        return "making a Debian needs root"
    if not (shutil.which("unshare") and shutil.which("chroot")):
        return "there is no unshare or chroot"
    if subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL, check=False
    ).returncode:
        return "this machine allows no namespaces"
    if not shutil.which("mmdebstrap") and not installed("mmdebstrap"):
        return "mmdebstrap is not available (apt-get install mmdebstrap)"
    return ""


def installed(package: str) -> bool:
    """Install a package of this machine's distribution; return whether that went well."""
    apt = shutil.which("apt-get")
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if not apt:
        return False
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", package]):
        if subprocess.run([apt, "-q", *words], env=environment, check=False, **quiet).returncode:
            return False
    return True


class Root:
    """The folder, and how to run something in it."""

    def __init__(self, folder: Path, reach: Reach, source: Path) -> None:
        """Make nothing yet. ``source``: the working tree to copy into the user's home."""
        self.folder = folder
        self._reach = reach
        self._source = source

    def make(self, suite: str, packages: list[str]) -> str:
        """Make the root. Return mmdebstrap's last output if that fails, ``""`` otherwise."""
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--aptopt={STALE}", f"--include={','.join(packages)}"]
        done = subprocess.run([*command, suite, self.folder], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"mmdebstrap failed: {(done.stderr.strip().splitlines() or ['nothing said'])[-1]}"
        subprocess.run(["chroot", self.folder, "useradd", "--create-home", USER], check=True)
        self._copy()
        return ""

    def _copy(self) -> None:
        """Copy the present files that git would take, and make them a repository of the user's."""
        checkout = self.folder / CHECKOUT[1:]
        names = subprocess.run(
            ["git", "-C", self._source, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            stdout=subprocess.PIPE,
            check=True,
        ).stdout.split(b"\0")
        for name in map(os.fsdecode, filter(None, names)):
            if (self._source / name).is_file():
                (checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self._source / name, checkout / name)
        subprocess.run(["chroot", self.folder, "chown", "-R", f"{USER}:{USER}", CHECKOUT], check=True)

    def run(self, command: str, user: str = USER) -> int:
        """Run a shell's command in the checkout; return its exit status."""
        return subprocess.run(self.words(command, user), stdin=subprocess.DEVNULL, check=False).returncode

    def words(self, command: str, user: str = USER) -> list[str]:
        """Return the command that runs a shell's command in the checkout. Its processes and mounts have namespaces of

        their own, and are gone when the first process ends.
        """
        return ["unshare", "--mount", "--pid", "--kill-child", "sh", "-ec", self._entry(command, user)]

    def index(self) -> dict[str, str]:
        """Return what a container of this root needs to reach the package index: path on this machine → path in it."""
        return write_config(self.folder.with_name("pip.conf"), self._reach)

    def _entry(self, command: str, user: str) -> str:
        quoted = shlex.quote(str(self.folder))
        lines = [
            f"mount -t proc proc {quoted}/proc",
            f"mount --rbind /dev {quoted}/dev",
            f"mount --rbind /sys {quoted}/sys",
            f"mount -t tmpfs -o mode=1777 tmpfs {quoted}/tmp",  # noqa: S108 - the root's own
        ]
        for path in self._reach.paths:
            target = quoted + shlex.quote(path)
            made = f"mkdir -p {target}"
            if not Path(path).is_dir():
                made = f"mkdir -p {quoted}{shlex.quote(str(Path(path).parent))}; [ -e {target} ] || : > {target}"
            lines += [made, f"mount --bind {shlex.quote(path)} {target}", f"mount -o remount,bind,ro {target}"]
        home = HOME if user == USER else "/root"
        environment = {"HOME": home, "USER": user, "LOGNAME": user, "PATH": PATH, "LANG": "C.UTF-8"}
        environment |= self._reach.environment
        variables = " ".join(shlex.quote(f"{name}={value}") for name, value in environment.items())
        inner = shlex.quote(f"cd {CHECKOUT} && {command}")
        # Not exec: the shell is the namespace's first process, and adopts orphaned processes.
        lines += ["set +e", f"chroot --userspec={user}:{user} {quoted} env -i {variables} sh -c {inner}", "exit $?"]
        return "\n".join(lines)
