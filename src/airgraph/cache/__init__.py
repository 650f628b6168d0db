"""A compile cache: what was traced once is read from a file, checked, and captured without Dynamo."""
