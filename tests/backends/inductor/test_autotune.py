"""The candidates that Inductor times are in the record, at the call or kernel that they were for."""

from __future__ import annotations

import pytest
import torch

from nbcompile.api import compile as nb_compile


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # torch's own, while it times
def test_candidates_and_their_times() -> None:
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x, y)

    x, y = torch.randn(2, 32, 32), torch.randn(2, 32, 32)
    options = {"fx_graph_cache": False, "autotune_local_cache": False}
    run = nb_compile(product, backend="inductor", mode="max-autotune", options=options)
    torch.testing.assert_close(run(x, y), torch.bmm(x, y))
    record = run.compilation
    assert run.ran_compiled and not record.notes
    assert len(record.autotune) >= 2 and {choice.candidate for choice in record.autotune} > {"bmm"}
    assert all(choice.seconds and 0 < choice.seconds < 1 for choice in record.autotune)
    (best,) = [choice for choice in record.autotune if choice.chosen]
    assert best.seconds == min(choice.seconds or 1 for choice in record.autotune)
    # For the one product there is: a kernel where Inductor's template won, else the library's call.
    (step,) = [node for node in record.graph("g0.fw.fused").nodes if node.kind != "input"]
    assert {choice.kernel for choice in record.autotune} == {step.id}
    assert (best.candidate == "bmm") == (step.kind == "library")
