"""Several nodes on one machine: network namespaces, whose only way to each other is a relay that can delay and lose packets."""
