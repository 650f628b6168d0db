"""Facts about an FX graph that passes ask for: aliases, chains of writes, sizes, forms that write in place."""
