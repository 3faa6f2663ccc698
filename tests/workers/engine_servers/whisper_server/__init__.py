"""The server over whisper.cpp."""
