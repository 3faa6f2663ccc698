"""The requests of the API documents, with every documented field, sent to a real server.

One file per route, with those of one subject in a folder. Helpers start servers with a hub, releases or an NPU. Our own
behaviour is tested in server/.
"""
