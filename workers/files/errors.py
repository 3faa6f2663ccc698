"""The one error of all readers of model files."""

from __future__ import annotations


class BrokenError(ValueError):
    """The file or folder is not a model of its kind, or not a complete one.

    The message is for the caller, so it has no path.
    """
