"""Tests of the gateway package: its HTTP server, request handling and logs, with fakes of the supervisor and the workers.

The helpers may be imported by the subfolders. No test here starts a supervisor or an engine.
"""
