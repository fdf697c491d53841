from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo.config as dynamo


@pytest.fixture
def sizes_of_data_captured() -> Iterator[None]:
    """torch keeps sizes and numbers that depend on data in the graph."""
    torch._dynamo.reset()
    with dynamo.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield
    torch._dynamo.reset()
