"""The supervisor: decides who is loaded, who runs, who waits and who must leave. It never touches a token."""
