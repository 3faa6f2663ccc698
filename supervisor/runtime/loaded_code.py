"""Which code this supervisor runs. It shows whether an upgrade has happened."""

from __future__ import annotations

import os
from typing import Final

from protocol import RELEASE
from protocol.messages.peers import LoadedCode

LOADED_CODE: Final = LoadedCode(RELEASE, os.urandom(6).hex())
"""Made when the fork server imports this module, so all supervisors that it forks have the same value."""
