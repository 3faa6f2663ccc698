"""Tools of chats, as this server needs them: the prompt, the grammar that forces a call, and the limits of its schemas. All pure.

`workers/tool_calls` reads the calls in answers, because other engines need that too. Nothing here knows the library or the network.
"""
