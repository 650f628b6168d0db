"""The settings of npugraph_ex."""
