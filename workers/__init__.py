"""A worker: one process that owns one engine, and carries its tokens to the gateways."""
