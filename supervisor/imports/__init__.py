"""What becomes of the models and settings of another server here: ``python -m supervisor.imports SOURCE PATH`` prints the plan.

One module a source. Each has declared types of what the source's files say, and a pure function from these to an
:class:`~protocol.config.import_plan.ImportPlan`; what reads a source's folder is beside it. `checked_plan` takes out of a
plan what no recipe accepts. Nothing here changes anything: ``lemonbus import`` (`gateway/cli/imports.py`) applies the plan.
"""
