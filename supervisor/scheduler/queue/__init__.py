"""What waits for a model, in which order, and how it stops waiting: a slot is granted, or it is answered. Pure.

The rest of the scheduler imports all of it. Outside, `fair_share` and `request_queue` can be read on their own. Nothing
that looks at more than one model belongs here, but in the folder above.
"""
