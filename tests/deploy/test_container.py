"""The image and the service of compose say what the server needs. ``python -m tests.container`` builds and runs them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "container"
UNIT = ROOT / "deploy" / "systemd" / "lemonbus.service"


def test_a_stop_has_as_much_time_as_with_systemd() -> None:
    period = re.search(r"^    stop_grace_period: (\d+)s$", (FOLDER / "compose.yaml").read_text(), re.MULTILINE)
    timeout = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert period
    assert timeout
    assert period[1] == timeout[1]


def test_the_build_gets_what_it_copies_and_nothing_else() -> None:
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    sources = {source for line in copies for source in line.split()}
    assert all((ROOT / source).exists() for source in sources)
    sent = re.findall(r"^!/(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert set(sent) == sources
