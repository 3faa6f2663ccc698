"""What `/metrics` shows: figures that are accumulated as messages pass, and their rendering in Prometheus's format.

`server_metrics.py` records; scheduler and handlers call it. `families.py` names what is shown, `exposition.py` and `text_format.py`
write it; prometheus_client reads what engines answer. `collection.py` asks the other processes. Nothing here may block, or keep a series per request,
client or address: every label has a bounded number of values.
"""
