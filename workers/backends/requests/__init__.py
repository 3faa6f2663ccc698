"""What the translations of requests and answers of several recipes share. All of it is pure.

What only one recipe needs is in its folder.
"""
