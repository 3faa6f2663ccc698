"""What every process of lemonbus agrees on: messages, wire form, failures, settings, logs.

This package imports none of the others. Its version is the version of ``README.md`` beside it.
"""

VERSION = 4
"""Version of the wire document. It travels in the first line of every control message."""

RELEASE = "0.1.0"
"""Version of the distribution; setup.cfg, the terminal and the health report read it here."""
