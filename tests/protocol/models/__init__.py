"""Tests of the words for models: checkpoints, devices, sampling defaults."""
