"""``make screenshots``: the pictures of the page in ``docs/screenshots``, taken in a real browser of a real server."""
