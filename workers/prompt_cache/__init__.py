"""Prompt caches on the disk: what an engine has read of conversations outlives it, until its model's next load.

`workers.worker` uses `engine_caches`, the job that deletes models uses `store`. What an engine is asked for, and what the key of
its files is made from, belongs in the folder of its recipe.
"""
