"""The admission of requests."""

from __future__ import annotations

import pytest

from tests.supervisor.limits.admission_harness import Admission


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Admission:
    return Admission(monkeypatch)
