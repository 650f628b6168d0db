"""What a capture is made of: the lowered FX graph, its inputs and outputs. Knows no device runtime."""
