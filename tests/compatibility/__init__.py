"""The requests of the API documents, with every documented field, sent to a real server. Each route has a file, and

each subject a folder. Helpers start servers with a hub, releases or an NPU. Our own
behaviour is tested in server/.
"""
