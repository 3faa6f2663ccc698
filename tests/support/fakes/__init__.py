"""Stand-ins on loopback or in a folder for what the server asks outside: the Hugging Face hub, a release server,

a folder of wheels, a machine's /proc and /sys, the vendors' driver tools. No fake of our own processes belongs here.
"""
