"""What a cached graph is, as data: what it computes, what it took for granted, what it returns."""
