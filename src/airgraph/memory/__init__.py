"""Where tensors of a graph lie: lifetimes, offsets, an independent verifier, pools. Pure but for pools."""
