"""Tests of what `/metrics` counts and how it is rendered."""
