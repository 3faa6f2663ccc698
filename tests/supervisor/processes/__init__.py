"""Starting, watching and ending other processes."""
