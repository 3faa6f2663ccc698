"""Stand-ins on loopback or in a folder for things outside the server: the Hugging Face hub, a release server, a folder

of wheels, a machine's /proc and /sys, the vendors' driver tools. Fakes of our own processes do not belong here.
"""
