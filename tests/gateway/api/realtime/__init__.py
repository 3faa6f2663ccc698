"""Transcription of live audio: its formats, its turns, its settings."""
