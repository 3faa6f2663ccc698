"""Tests of how batches are worked off."""
