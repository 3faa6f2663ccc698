"""The supervisor is killed alone, with others and under load; the same for the keeper, and for the directory that all processes share."""
