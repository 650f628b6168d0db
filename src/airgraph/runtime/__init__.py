"""Devices: what a graph is recorded with and replayed on."""
