"""The engine as the worker sees it: a child process with its output; `connections` to it; `remote`, the servers of models elsewhere.

Used by `workers.worker`. Decisions about requests and knowledge of recipes do not belong here.
"""
