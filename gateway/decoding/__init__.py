"""Decodes images and measures recordings from clients in a separate process, before an engine gets them.

`images` and `audio_duration` run in the decoder (`python -m gateway.decoding`), which ends if a file crashes it, takes too long, or its
client leaves; `decoder_process` is the gateway's side. Any folder may import `image_header` and `base64_text`, which are pure.
`gateway/requests/request_media.py` knows where a request has media.
"""
