"""Readers of model files: as much of a header as it takes to know that a file is whole and what it was trained for.

Used by backends, engines and jobs. Every reader raises `errors.BrokenError`. No engine library is imported here.
"""
