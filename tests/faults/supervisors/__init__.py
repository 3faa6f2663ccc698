"""The supervisor killed alone, with others and under load; the keeper, and the directory that all of them share."""
