"""Tools of chats: the prompt, the grammar that forces a call, and the limits of its schemas. All pure.

`workers/tool_calls` reads the calls in answers, because other engines also need that. Nothing here knows the library or
the network.
"""
