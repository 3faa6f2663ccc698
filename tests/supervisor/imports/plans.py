"""What a plan says, for assertions."""

from __future__ import annotations

from protocol.config.import_plan import ImportPlan


def left_out(plan: ImportPlan, model: str = "") -> dict[str, str]:
    """What a plan leaves out of a model, or of the server, each with the reason."""
    return {note.what: note.why for note in plan.left_out if note.model == model}
