"""Clients' files on the disk: their upload without holding them in memory, and who may see which.

The API families whose routes they are import this folder. What is on the disk, and where, is in ``protocol/batches``.
"""
