"""The engine as the worker sees it: a child process with its output, and the HTTP connections to it. `remote` is for models on servers elsewhere.

Used by `workers.worker`. Decisions about requests and knowledge of recipes do not belong here.
"""
