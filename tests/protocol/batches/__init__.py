"""Tests of bytes on their way: frames, connections, forms, chunks."""
