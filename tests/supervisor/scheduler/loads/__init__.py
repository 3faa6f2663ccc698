"""Loads: assignment of workers, dry runs, and how far loads are."""
