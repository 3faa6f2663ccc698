"""The door: HTTP on one side, messages on the other. It owns no state but the requests it is answering."""
