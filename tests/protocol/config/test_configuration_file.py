"""Where the configuration file is looked for, and what is said about an unreadable one."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.config.config_file import MAX_FILE_BYTES, ConfigFile, config_paths, read_config_file
from protocol.failures import LemonbusError

PATH = "/etc/lemonbus/lemonbus.toml"


def test_where_the_file_is_looked_for() -> None:
    system = Path(PATH)
    assert config_paths({"HOME": "/home/me"}) == [Path("/home/me/.config/lemonbus/lemonbus.toml"), system]
    assert config_paths({"XDG_CONFIG_HOME": "/cfg", "HOME": "/h"}) == [Path("/cfg/lemonbus/lemonbus.toml"), system]
    assert config_paths({"LEMONBUS_CONFIG": "/a.toml", "HOME": "/h"}) == [Path("/a.toml")]
    assert config_paths({"LEMONBUS_CONFIG": "/a.toml"}, "/b.toml") == [Path("/b.toml")]


def test_reading_the_file(tmp_path: Path) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    wanted = tmp_path / "lemonbus" / "lemonbus.toml"
    if not Path(PATH).exists():
        assert read_config_file(home) is None
    wanted.parent.mkdir()
    wanted.write_text("port = 1")
    assert read_config_file(home) == ConfigFile(str(wanted), "port = 1")

    for path, bad, expected in (
        (tmp_path / "none.toml", None, "no such configuration file"),
        (wanted / "below", None, "no such configuration file"),
        (wanted.parent, None, "cannot be read: Is a directory"),
        (tmp_path / "latin.toml", b"host = '\xe4'", "expected UTF-8 text, byte 9 is not"),
        (tmp_path / "large.toml", b"#" * (MAX_FILE_BYTES + 1), "expected at most 1024 KiB, and it has more"),
    ):
        if bad:
            path.write_bytes(bad)
        with pytest.raises(LemonbusError, match=expected) as caught:
            read_config_file(home, str(path))
        assert str(caught.value).startswith(str(path))
