"""The fingerprints by which a new supervisor knows outdated processes."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from protocol.config.settings import Settings
from protocol.messages.reload import SettingEffect
from supervisor.processes.fingerprints import files_digest, gateway_fingerprint, worker_fingerprint
from supervisor.processes.setting_effects import EFFECTS

BASE = Settings(state_dir="/s", cache_dir="/c", runtime_dir="/r")


def test_fingerprints_differ_with_what_the_process_reads_and_with_nothing_else() -> None:
    for name, effects in EFFECTS.items():
        other = msgspec.structs.replace(BASE, **{name: "another value"})
        for_gateways = bool({SettingEffect.GATEWAYS, SettingEffect.LISTENER} & {*effects})
        assert (gateway_fingerprint(other) != gateway_fingerprint(BASE)) is for_gateways, name
        assert (worker_fingerprint(other) != worker_fingerprint(BASE)) is (SettingEffect.NEW_LOADS in effects), name


def test_a_digest_changes_with_a_file_of_the_packages_and_with_nothing_else(tmp_path: Path) -> None:
    module = tmp_path / "workers" / "engine" / "port.py"
    module.parent.mkdir(parents=True)
    module.write_text("PORT = 1\n")
    os.utime(module, (1.0, 1.0))
    before = files_digest(tmp_path)
    for other in (tmp_path / "docs" / "page.md", tmp_path / "workers" / "__pycache__" / "port.pyc"):
        other.parent.mkdir()
        other.write_text("other")
    assert files_digest(tmp_path) == before
    os.utime(module, (2.0, 2.0))
    assert files_digest(tmp_path) != before
