"""All that this package takes from PyTorch beyond its public interface, in one place; see `probes` for the list.

Nothing else names it: a test looks. What is imported late is imported here at first use, so that no start pays for it.
"""
