"""The programs that themselves fetch and keep the models of their recipe, one per line."""

from __future__ import annotations

from typing import Final

from workers.jobs.flm import FLM
from workers.jobs.model_program import ModelProgram

PROGRAMS: Final[dict[str, ModelProgram]] = {each.scheme: each for each in (FLM,)}
"""Checkpoint scheme → its program."""
