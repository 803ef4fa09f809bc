"""What kernels have around their loops."""

import pytest

from graphc.kernels.cpu.shared.kernel_source import balanced


@pytest.mark.parametrize(
    ("chunks", "units", "shared"),
    [
        (1, 9, 1),
        (2, 9, 2),
        (3, 9, 4),
        (3, 3, 2),
        (5, 9, 6),
        (11, 100, 12),
        (12, 128, 16),
        (11, 11, 8),
        (70, 99, 70),
    ],
)
def test_a_few_chunks_are_a_number_that_few_workers_share_evenly(chunks, units, shared):
    assert balanced(chunks, units) == shared
