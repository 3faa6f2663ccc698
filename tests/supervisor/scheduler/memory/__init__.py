"""Memory as the scheduler counts it."""
