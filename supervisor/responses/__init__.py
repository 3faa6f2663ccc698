"""The responses that the server keeps in memory for OpenAI's Responses API: a bounded store, without sockets and clock.

`runtime.supervisor` owns it as a `JournaledStore`, with a journal that outlives a supervisor; the handlers of responses and of
ended calls use it. What is in a response is the gateway's business.
"""
