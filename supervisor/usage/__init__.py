"""Who used what: tokens, engine time, requests and failures by API key, model and day, counted once and kept on the disk.

`accounting.py` takes the reports of ends from workers and gateways, and counts each once: here, in the metrics and against
the limits of keys. A journal in memory, which the keeper holds, has what no disk has yet, so that the next supervisor
goes on from there. `store.py` is the SQLite file; only the thread of `usage_writer.py` touches it. The text of a request
or an answer does not belong here.
"""
