"""Settings of torch that are put back after each test that asks for it."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def settings_as_before() -> Iterator[None]:
    deterministic = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    precision, threads, dtype = torch.get_float32_matmul_precision(), torch.get_num_threads(), torch.get_default_dtype()
    yield
    torch.use_deterministic_algorithms(deterministic[0], warn_only=deterministic[1])
    torch.utils.deterministic.fill_uninitialized_memory = fill
    torch.set_float32_matmul_precision(precision)
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_flush_denormal(False)
