"""What waits for a model, in which order, and how it stops waiting: a slot is granted, or it is answered. Pure.

The rest of the scheduler imports all of it; outside, `fair_share` and `request_queue` may be read alone.  Add nothing that
looks at more than one model here: that is for the folder above.
"""
