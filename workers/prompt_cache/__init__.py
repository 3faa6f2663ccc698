"""Prompt caches on the disk: what an engine has read of conversations survives until its model's next load.

`workers.worker` uses `engine_caches`; the job that deletes models uses `store`. Requests to engines, and what the key
of their files is made from, belong in the folder of the recipe.
"""
