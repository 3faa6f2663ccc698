"""A chat on the terminal: the session and its file, its sampling parameters, images, the line editor, and the commands of a conversation.

Only `lemonbus run` uses it. Everything else that talks to a model is in `gateway/cli/commands`.
"""
