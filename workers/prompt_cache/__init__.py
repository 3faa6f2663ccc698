"""Prompt caches on the disk: what an engine has read of conversations outlives it, until its model's next load.

`workers.worker` uses `engine_caches`; recipes use `cache_key`; the job that deletes models uses `store`. What an engine is asked
for, and which of its options matter, belongs in the folder of its recipe.
"""
