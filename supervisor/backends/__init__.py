"""The backends: which ones this machine supports, which are installed, and the releases that they are installed from.

Outside, import `inventory` and `releases`. Nothing is downloaded or removed here: a job process does that.
"""
