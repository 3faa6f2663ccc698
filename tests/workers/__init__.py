"""Tests of the workers package: recipes, file headers and streams as pure parts, a real worker process

(``worker_process``), our engine servers as processes, and jobs (``jobs``).
"""
