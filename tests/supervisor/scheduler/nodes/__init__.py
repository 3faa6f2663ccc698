"""Nodes: the choice of one for each model, and what happens when one joins, drains or is gone."""
