"""FastFlowLM's program `flm` in jobs: fetching, listing and removing its models, and its status.

Only `workers.jobs.model_programs` imports it.
"""
