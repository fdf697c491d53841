"""The links of Inductor's kernels are those that Inductor's own provenance artifact names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import torch
import torch._inductor.debug as debug
from torch import nn

from nbcompile.api import compile as nb_compile
from nbcompile.record.compilation import Compilation
from nbcompile.record.provenance import Links
from nbcompile.view import to_html, to_text

Artifact = Mapping[str, list[str]]  # "kernel:number of the call" → names of ATen nodes


@pytest.fixture(scope="module")
def compiled() -> Iterator[tuple[Compilation, list[Artifact]]]:
    """A TransformerLayer's training step: its record, and Inductor's artifact of each graph."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 16, requires_grad=True)
    artifacts: list[Artifact] = []
    original = debug.dump_inductor_provenance_info

    def dump() -> object:
        # What the artifact says of kernels; it is itself empty for a backward compiled when first needed.
        known = debug._inductor_triton_kernel_to_post_grad_node_info
        artifacts.append({name: list(nodes) for name, nodes in known.items()})
        made = original()
        known.clear()  # else a backward compiled at once has the forward's too
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(debug, "dump_inductor_provenance_info", dump)
        options = {"trace.provenance_tracking_level": 1, "fx_graph_cache": False}
        run = nb_compile(layer, backend="inductor", options=options)
        got = run(x)
        got.sum().backward()
    torch.testing.assert_close(got, layer(x))
    assert run.ran_compiled
    yield run.compilation, artifacts


@pytest.mark.nightly
@pytest.mark.slow
def test_kernels_link_to_the_nodes_that_inductor_names(
    compiled: tuple[Compilation, list[Artifact]],
) -> None:
    record, artifacts = compiled
    assert not record.notes and len(artifacts) == 2
    for prefix, artifact in zip(("g0.fw", "g0.bw"), artifacts, strict=True):
        names = {node.id: node.name for node in record.graph(prefix).nodes}
        links = Links(record)
        ours = []
        for node in record.graph(f"{prefix}.fused").nodes:
            if node.kind != "input":
                found = {names[id] for id in links.up(node.id) if id in names}
                ours.append((node.kind == "kernel", node.name, found))
        theirs = sorted(artifact.items(), key=lambda item: int(item[0].rpartition(":")[2]))
        assert [found for _, _, found in ours] == [set(nodes) for _, nodes in theirs]
        for (generated, name, _), (label, _) in zip(ours, theirs, strict=True):
            assert generated == label.startswith("cpp_") and (not generated or label.startswith(f"{name}:"))
        assert sum(generated for generated, _, _ in ours) >= 3


@pytest.mark.nightly
@pytest.mark.slow
def test_everything_leads_to_the_captured_graph(compiled: tuple[Compilation, list[Artifact]]) -> None:
    record, _ = compiled
    links = Links(record)
    for kernel in record.kernels:
        assert any(id.startswith("g0.fx.") for id in links.up(kernel.id)), kernel.name
        assert kernel.sources["cpp"].startswith("#include") and kernel.bytes_read and kernel.bytes_written
    # One kernel a node of the fused graph, each with its loops, which no other has.
    fused = [node.id for graph in record.graphs if graph.stage == "fused" for node in graph.nodes]
    assert len([id for id in fused if ".k" in id]) == len(record.kernels)
    loops = [loop for kernel in record.kernels for loop in kernel.loops]
    known = {node.id for graph in record.graphs if graph.stage == "loops" for node in graph.nodes}
    assert len(set(loops)) == len(loops) and known.issuperset(loops)
    assert Compilation.from_json(record.to_json()) == record


@pytest.mark.nightly
@pytest.mark.slow
def test_decisions_have_inductors_reasons(compiled: tuple[Compilation, list[Artifact]]) -> None:
    record, _ = compiled
    nodes = {node.id for graph in record.graphs if graph.stage == "loops" for node in graph.nodes}
    kernel_of = {loop: kernel.id for kernel in record.kernels for loop in kernel.loops}
    assert {d.accepted for d in record.decisions} == {True, False}
    for decision in record.decisions:
        assert {decision.producer, decision.consumer} <= nodes and decision.code and decision.reason
        if decision.accepted:
            assert kernel_of[decision.producer] == kernel_of[decision.consumer] and decision.bytes_saved > 0
    refused = {d.code for d in record.decisions if not d.accepted}
    assert {"library-call", "no-shared-data"} <= refused and "inductor" not in refused


@pytest.mark.nightly
@pytest.mark.slow
def test_the_views_read_it(compiled: tuple[Compilation, list[Artifact]]) -> None:
    record, _ = compiled
    assert "cpp_fused" in to_text(record) and "cpp_fused" in to_html(record)
