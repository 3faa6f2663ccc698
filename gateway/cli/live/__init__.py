"""The running server on a terminal: what `lemonbus ps` and `lemonbus top` say about it, and the screen of `top`.

`words`, `sections` and `layout` are pure: an overview in, text out. `feed` follows the server in a thread, `terminal` owns the screen
and the keyboard, and `viewer` puts them together.
"""
