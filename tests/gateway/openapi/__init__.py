"""Tests of `/openapi.json` and `/docs`."""
