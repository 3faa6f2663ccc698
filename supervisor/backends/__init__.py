"""The backends: which ones this machine supports, which are installed, and what a new installation would be made of.

Outside, import `inventory` and `releases`. Nothing is downloaded or removed here: a job process does that.
"""
