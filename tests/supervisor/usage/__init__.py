"""Who used what: its counts, its file, and its journal."""
