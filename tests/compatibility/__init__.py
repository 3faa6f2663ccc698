"""The requests of the API documents that the server is compatible with, sent to a real server, with every documented field.

One file a route, those of one subject in a folder; helpers start servers with a hub, releases or an NPU.
Behaviour of our own goes to server/.
"""
