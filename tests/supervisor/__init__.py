"""Tests of the supervisor package. ``simulation`` drives the scheduler without processes, sockets or a clock, and

checks ``invariants`` after every step. Tests with real workers belong in workers/ or server/.
"""
