"""Tests of prompt caches on the disk."""
