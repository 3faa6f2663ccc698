"""Other nodes of a real server: their agents are processes of this machine, which see folders of their own."""
