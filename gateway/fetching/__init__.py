"""Images that a request names by URL (`fetch_images`): allowed addresses, the fetch, and limits.

The API families use `image_source`. Engines never fetch anything themselves. Nothing here knows the request bodies of a
family.
"""
