"""Tiny models with scripted output that real engines load in milliseconds, and the writers of their file formats.

Tests import ``tiny_models`` and ``genai_models``; the writers are internal. After a change here, the models are made again.
"""
