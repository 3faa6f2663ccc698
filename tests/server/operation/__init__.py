"""What an operator does with a running server and reads of it: reload, stop, upgrade, the log, metrics.

Processes that are killed or stopped go to faults/.
"""
