"""The measurement of a model by `lemonbus bench`: prompts, single requests, streams at the same time, and what is computed from them.

It sees what any client of the HTTP API sees. `tests/benchmarks` compares releases of lemonbus; this compares models and machines.
"""
