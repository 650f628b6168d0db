"""Whether a cached graph is right for a call, in this process, now."""
