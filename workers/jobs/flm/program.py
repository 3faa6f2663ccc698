"""FastFlowLM as jobs use it."""

from __future__ import annotations

from typing import Final

from workers.jobs.flm import models, status
from workers.jobs.model_program import ModelProgram

FLM: Final = ModelProgram(
    scheme=models.PROGRAM,
    title="FastFlowLM",
    action="flm validate",
    fetch=models.fetch,
    remove=models.remove,
    version=status.version,
    problem=status.problem,
)
