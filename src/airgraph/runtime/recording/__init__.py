"""What a recording is on every device: its inputs and outputs, the walk over a program, the call of a graph."""
