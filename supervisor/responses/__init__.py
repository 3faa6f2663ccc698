"""The responses that the server keeps in memory for OpenAI's Responses API: a bounded store, without sockets and clock.

`lifecycle.components` makes it as a `JournaledStore`, with a journal that outlives a supervisor. The handlers of responses
and of ended calls use it. Only the gateway knows what is in a response.
"""
