"""Settings of any size reach the supervisor, and each of its successors."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from protocol.config import settings_environment

PROGRAM = """
import os
from protocol.config import settings_environment
descriptor = os.environ.get(settings_environment.FILE_VARIABLE)
print(len(settings_environment.take(os.environ)[settings_environment.VARIABLES[0]]), descriptor and os.path.exists(f"/proc/self/fd/{descriptor}"))
"""


def close(handed: dict[str, str]) -> None:
    if settings_environment.FILE_VARIABLE in handed:
        os.close(int(handed[settings_environment.FILE_VARIABLE]))


@pytest.mark.parametrize("size", [0, 1000, settings_environment.MAX_VARIABLE_BYTES, 3_000_000])
def test_values_come_back_and_nothing_is_left(size: int) -> None:
    values = {settings_environment.VARIABLES[0]: "x" * size, settings_environment.VARIABLES[2]: "ä"}
    handed = settings_environment.export(values)
    assert all(len(each) < 100_000 for each in handed.values())
    environment = {**handed, "HOME": "/"}
    assert settings_environment.take(environment) == values
    assert environment == {"HOME": "/"}
    for descriptor in (int(handed[name]) for name in handed if name == settings_environment.FILE_VARIABLE):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_one_supervisor_after_the_other_gets_the_same_large_settings() -> None:
    handed = settings_environment.export({settings_environment.VARIABLES[0]: "x" * 500_000})
    try:
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM],
                env={**os.environ, **handed},
                pass_fds=[int(handed[settings_environment.FILE_VARIABLE])],
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
            )
            assert done.stdout.split() == ["500000", "False"], "it has closed the file"
    finally:
        close(handed)


def test_without_variables_there_is_nothing() -> None:
    assert settings_environment.take({"HOME": "/"}) == {}
