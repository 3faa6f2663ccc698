"""Which code this supervisor runs: what says whether an upgrade has happened."""

from __future__ import annotations

import os
from typing import Final

from protocol import RELEASE
from protocol.messages.peers import LoadedCode

LOADED_CODE: Final = LoadedCode(RELEASE, os.urandom(6).hex())
"""Made when this module is imported, by the fork server: so all supervisors that one forks have the same."""
