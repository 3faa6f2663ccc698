"""Batches as the routes of several API families make, show and cancel them; what is on the disk is in ``protocol/batches``."""
