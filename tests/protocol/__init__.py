"""Tests of the protocol package: wire format, settings, logs, event loop, checkpoints, forms.

Only what needs no other package belongs here.
"""
