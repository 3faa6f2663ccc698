"""How a new supervisor takes over: what its peers say, joined by tables, and a supervisor that listens until it knows all."""
