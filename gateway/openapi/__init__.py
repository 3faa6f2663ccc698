"""The OpenAPI document at ``/openapi.json``, made from the routes' declared types, and the page at ``/docs``.

``app.py`` imports `routes.py`, which has the page; `document.py` is imported when the first client asks for it. What a
family's routes take and answer is declared in that family's module `documentation`, not here.
"""
