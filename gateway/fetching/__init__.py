"""Images that a request names by URL (`fetch_images`): which addresses may be asked, the fetch, and the limits of a request.

The API families use `image_source`. Engines never fetch anything themselves; nothing here knows a family's request bodies.
"""
