"""Attention: of training and of inference, over one core."""

from airgraph.npu_operators.attention import inference, training

__all__ = ["OPERATORS"]

OPERATORS = (*training.OPERATORS, *inference.OPERATORS)
