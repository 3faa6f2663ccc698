"""Keys of a real server: which requests they allow, and the limits of each.

The rules themselves are tested in gateway/access/ and supervisor/limits/.
"""
