"""Readers of model files: as much of a header as is needed to know that a file is complete and what it was trained for.

Used by backends, engines and jobs. Every reader raises `errors.BrokenError`. No engine library is imported here.
"""
