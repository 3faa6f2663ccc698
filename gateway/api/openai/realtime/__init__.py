"""OpenAI's realtime API, for transcription: live audio comes over a WebSocket, and each turn of it becomes a transcription request.

Sound, turns and settings are pure; `session` has the WebSocket, `transcription` the requests. Nothing here knows engines.
"""
