"""The web page at ``/`` and the one at ``/docs``: the files in ``assets/``, and the resources that send them.

The files are HTML, CSS and ES modules as a browser reads them: nothing is built. What the page shows comes from routes of
``gateway/api/``; a route does not belong here.
"""
