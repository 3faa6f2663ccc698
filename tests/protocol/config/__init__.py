"""Tests of the settings: their sources, the configuration file, sections, API keys."""
