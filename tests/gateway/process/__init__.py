"""A real gateway process between raw HTTP clients and a fake supervisor with fake workers.

Pure parts of the gateway are tested one folder up.
"""
