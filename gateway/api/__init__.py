"""The HTTP APIs, one folder per API family; each translates between its clients and the internal request format (OpenAI's).

`app.py` imports the resources (falcon's word for what answers a route); nothing else does.
A family imports `api/common` and never another family. No sockets, no retries, no scheduling.
"""
