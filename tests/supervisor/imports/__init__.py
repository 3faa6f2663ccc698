"""Tests of what becomes of other servers' models."""
