"""Every dependency has a lower bound, and a run of the tests uses these versions."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deploy.lowest import SETUP, lowest

BOTH = "[options]\ninstall_requires =\n    {}\n[options.extras_require]\ntest =\n    {}\n"


def test_the_bounds_of_all_requirements() -> None:
    setup = BOTH.format(
        "falcon >= 4.0\n    gunicorn[gevent] >= 27.0, < 28", "falcon >= 4.0\n    pytest >= 9.0; os_name == 'posix'"
    )
    assert lowest(setup) == {"falcon": "4.0", "gunicorn": "27.0", "pytest": "9.0"}


@pytest.mark.parametrize(
    ("requirements", "output"),
    [
        (("falcon", "pytest >= 9"), "got 'falcon'"),
        (("falcon == 4.0", "pytest >= 9"), "got 'falcon == 4.0'"),
        (("falcon >= 4.0", "falcon >= 4.1"), "falcon has two lowest versions: 4.0 and 4.1"),
    ],
)
def test_a_requirement_without_one_lower_bound_is_an_error(requirements: tuple[str, str], output: str) -> None:
    with pytest.raises(ValueError, match=output):
        lowest(BOTH.format(*requirements))


def test_our_own_are_constraints_that_pip_reads() -> None:
    done = subprocess.run(
        [sys.executable, SETUP.parent / "deploy" / "lowest.py"], capture_output=True, text=True, timeout=30, check=True
    )
    assert "falcon==4.2" in done.stdout.splitlines()
    assert set(done.stdout.splitlines()) == {
        f"{name}=={version}" for name, version in lowest(SETUP.read_text()).items()
    }


def test_gunicorn_whose_private_parts_are_used_has_an_upper_bound() -> None:
    assert "gunicorn[gevent] >= 27.0, < 28" in SETUP.read_text()
