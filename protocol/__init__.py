"""What every process of lemonbus agrees on: messages, wire format, failures, ids, settings, logs.

This package imports none of the other packages; all of them may import any module of it. README.md in this folder
specifies the wire protocol. Nothing that decides for one process alone is added here.
"""

VERSION = 7
"""Version of the wire document. It travels in the first line of every control message."""

UNDERSTOOD = frozenset({VERSION})
"""Versions whose messages this one decodes, with the meaning that they had: processes that speak one of these are taken over
by a newer supervisor. README.md says which."""

RELEASE = "0.1.0"
"""Version of the distribution; setup.cfg, the terminal and the health report read it here."""
