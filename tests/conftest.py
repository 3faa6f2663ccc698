"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A property is not wrong because the machine was busy; the timeout of pytest bounds all tests.
settings.register_profile("lemonbus", deadline=None, print_blob=True)
settings.load_profile("lemonbus")
