"""FastFlowLM's own program `flm`, asked by jobs: it fetches, lists and removes its models, and tells whether it can run.

Only `workers.jobs.model_programs` imports it.
"""
