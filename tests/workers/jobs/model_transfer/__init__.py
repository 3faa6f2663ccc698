"""Tests of the jobs that send and fetch model files: with senders in this process, and of both jobs as real processes."""
