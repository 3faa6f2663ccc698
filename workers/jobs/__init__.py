"""Jobs: processes that fetch something once, tell how far they are on the bus, and end."""
