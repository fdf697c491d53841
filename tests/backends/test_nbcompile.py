"""Our compiler as a plain ``torch.compile`` backend."""

from __future__ import annotations

import pytest
import torch


def test_a_program_that_asked_for_no_record_is_told_what_runs_eagerly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from nbcompile.compiler import compile_graph
    from nbcompile.errors import ToolchainError

    def missing() -> None:
        raise ToolchainError("there is no compiler.", advice="Install one.")

    monkeypatch.setattr(compile_graph, "find_toolchain", missing)
    torch._dynamo.reset()
    run = torch.compile(lambda x: x.sin() + 1, backend="nbcompile")
    x = torch.randn(3)
    with caplog.at_level("WARNING", "nbcompile"):
        assert torch.equal(run(x), x.sin() + 1)
        torch._dynamo.reset()
        run(x)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "nbcompile"]
    assert "a graph runs eagerly: our compiler could not compile it" in said
    assert "there is no compiler." in said and said.endswith("Install one.")
