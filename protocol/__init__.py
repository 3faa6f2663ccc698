"""What every process of lemonbus agrees on: messages, wire format, failures, ids, settings, logs.

This package imports none of the other packages; all of them may import any module of it. README.md in this folder
specifies the wire protocol. Nothing that decides for one process alone is added here.
"""

VERSION = 12
"""Version of the wire protocol. It is in the first line of every control message."""

UNDERSTOOD = frozenset({VERSION})
"""Older versions whose messages this one decodes with their old meaning.

A newer supervisor takes over processes that speak one of these; README.md lists them.
"""

RELEASE = "0.1.0"
"""Version of the distribution. setup.cfg, the terminal and the health report read it here."""
