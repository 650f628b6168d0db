"""The engine that replays tapes: how it is compiled, found and loaded, and its twin in Python."""
