"""Limits of engines that cannot be enforced: what a server says at its start, where no control group can be made, and where one can."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from protocol.config.settings import Settings
from protocol.runtime.control_groups import Cgroup
from supervisor.models.options import settings_check
from supervisor.models.options.settings_check import SettingWarning, limit_warnings

LIMITED = msgspec.convert(
    {
        "memory_limit": 10_000_000,
        "defaults": {"llamacpp": {"memory_limit": 1_000_000_000, "nice": 5}},
        "models": {"a.b": {"cpus": 1.5}, "c": {"nice": -5}, "d": {"memory_limit": 0}},
    },
    Settings,
)


@pytest.fixture(autouse=True)
def unprivileged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)


def test_without_control_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_check, "parent_of_engines", lambda _controller: None)
    none = "no control group for an engine can be made here; "
    watched = f"{none}the engine's memory is looked at four times a second instead"
    assert limit_warnings(LIMITED) == [
        SettingWarning("memory_limit", watched),
        SettingWarning("defaults.llamacpp.memory_limit", watched),
        SettingWarning(
            'models."a.b".cpus',
            f"{none}the engine runs on whole processors instead, 2 of them, chosen at random",
        ),
        SettingWarning(
            "models.c.nice",
            "it is left out: a negative value needs root, or a limit on nice values that allows it",
        ),
    ]


def test_with_control_groups_only_what_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Cgroup("/service", Path("/sys/fs/cgroup/service"), 2)
    monkeypatch.setattr(settings_check, "parent_of_engines", lambda _controller: group)
    assert [each.setting for each in limit_warnings(LIMITED)] == ["models.c.nice"]


def test_a_user_that_engines_cannot_run_as(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_check, "parent_of_engines", lambda _controller: None)
    models = {"models": {"a": {"user": "no-such-user"}, "b": {"user": "1234"}, "c": {"user": "root"}}}
    missing, other = limit_warnings(msgspec.convert(models, Settings))
    assert (missing.setting, other.setting) == ("models.a.user", "models.c.user"), "b is the server's own user"
    assert missing.text == "the model cannot be loaded: user: this machine has no user no-such-user"
    assert "only root can start an engine as another user" in other.text


def test_nothing_is_said_without_limits() -> None:
    assert limit_warnings(Settings()) == []
