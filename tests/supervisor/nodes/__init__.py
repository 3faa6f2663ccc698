"""What the supervisor knows of other nodes: pure tables, without a node."""
