"""Tests of the base of each process: the event loop, logs, small files."""
