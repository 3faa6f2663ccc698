"""How model files get from one node of the server to another: over HTTP, in jobs on both nodes.

Used by the jobs `receive_files` and `share_files`. Which node gets what from whom, the supervisor decides.
A *sender* is a node, or its job, that sends files; a *receiver* gets them; a *transfer* is all that a receiver does for one model, a *download*
included. *Copies* are what is there afterwards.
"""
