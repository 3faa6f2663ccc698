"""The HTTP APIs, one folder per API family. Each folder has a `Dialect`: its routes, translations and errors as one object.

`gateway/app.py` lists the dialects; nothing else imports them. Engines speak OpenAI's form: a dialect translates to and from it.
A family imports `api/common` and never another family. No sockets, no retries, no scheduling.
"""
