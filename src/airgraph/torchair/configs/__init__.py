"""The settings of TorchAir, and the options that they come to."""
