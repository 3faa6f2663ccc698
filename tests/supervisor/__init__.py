"""Tests of the supervisor package. The scheduler is driven by ``simulation``: no process, no socket, no clock;

``invariants`` are checked after every step. Tests with real workers belong in workers/ or server/.
"""
