"""Tests of the workers package: recipes, file headers and streams as pure parts, a real worker process

(``worker_process``), and our engine servers as processes. Jobs are tested in jobs/.
"""
