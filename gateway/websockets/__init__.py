"""What all WebSockets have in common: the handshake and the adapter of the client's socket.

The resources of their routes import this folder. What the messages mean belongs to those resources.
"""
