"""The scheduler as tables and histories: a simulation plays its effects, and `invariants` judges each state."""
