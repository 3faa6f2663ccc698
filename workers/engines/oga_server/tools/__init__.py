"""Tools of chats: how each family of models reads and writes calls, the prompt, the grammar, and the reader of answers. All pure.

The server uses ``chat_prompt``, ``grammar`` and ``call_parser``. Nothing here knows the library or the network.
"""
