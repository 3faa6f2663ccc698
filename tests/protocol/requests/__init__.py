"""Tests of the limits on requests."""
