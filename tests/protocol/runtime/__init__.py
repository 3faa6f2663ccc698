"""Tests of what each process runs on: the event loop, logs, small files."""
