"""Every lowering of the xla backend that our own registry has samples of, and more, held against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

from nbcompile.compiler.lower.registry import Sample, registry
from nbcompile.compiler.lower.samples import calls, tensor
from nbcompile.compiler.stages import AtenGraph
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from tests.compiler.lower.harness import _wide, as_list, call_graph, compare
from tests.compiler.lower.rewritten import SAMPLES
from tests.nightly import few

pytest.importorskip("jax", reason="pip install jax")

PARTS = 12  # graphs of many calls each: XLA takes about as long for one call as for ten
AWKWARD = ("0-d", "empty", "transposed", "broadcast", "strided", "expanded")
aten = torch.ops.aten


def call(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


OWN: dict[Any, list[Sample]] = {
    aten.mm.default: calls(
        float=lambda draw: call(draw(5, 7), draw(6, 7).t()),
        half=lambda draw: call(draw(5, 64, dtype=torch.bfloat16), draw(64, 3, dtype=torch.bfloat16)),
        int=lambda draw: call(draw(3, 4, dtype=torch.int64), draw(4, 2, dtype=torch.int64)),
        empty=lambda draw: call(draw(3, 0), draw(0, 2)),
    ),
    aten.bmm.default: calls(batch=lambda draw: call(draw(2, 3, 4), draw(2, 5, 4).transpose(1, 2))),
    aten.addmm.default: calls(
        scaled=lambda draw: call(draw(3), draw(2, 4), draw(4, 3), beta=0.5, alpha=2),
        unread=lambda draw: call(draw(3, special=True), draw(2, 4), draw(4, 3), beta=0),
    ),
    aten.baddbmm.default: calls(batch=lambda draw: call(draw(2, 3, 5), draw(2, 3, 4), draw(2, 4, 5))),
    aten.addmv.default: calls(vector=lambda draw: call(draw(3), draw(3, 4), draw(4), alpha=3)),
    aten.mv.default: calls(vector=lambda draw: call(draw(3, 4), draw(4))),
    aten.dot.default: calls(vector=lambda draw: call(draw(4), draw(4))),
    aten.where.ScalarOther: calls(mixed=lambda draw: call(draw(4, dtype=torch.bool), draw(4), 2)),
    aten.bucketize.Tensor: calls(right=lambda draw: call(draw(3, 4), draw(6).sort().values, right=True)),
    aten.kthvalue.default: calls(rows=lambda draw: call(draw(3, 5), 2)),
    aten.sort.stable: calls(
        nan=lambda draw: call(draw(4, 9, special=True), stable=True, dim=1, descending=True),
        ties=lambda draw: call(torch.tensor([2, 1, 2, 1, 3]), stable=True, dim=0, descending=True),
        zero_d=lambda draw: call(draw(), stable=True),
    ),
    aten.topk.default: calls(
        largest=lambda draw: call(draw(4, 9), 3),
        smallest=lambda draw: call(draw(9, 4), 2, 0, False),
    ),
    aten.searchsorted.Tensor: calls(
        rows=lambda draw: call(draw(3, 8).sort(-1).values, draw(3, 5), right=True)
    ),
    aten._to_copy.default: calls(
        to_int=lambda draw: call(draw(20, low=-90, high=90), dtype=torch.int8),
        to_bool=lambda draw: call(draw(20, special=True), dtype=torch.bool),
        from_bool=lambda draw: call(draw(20, dtype=torch.bool), dtype=torch.bfloat16),
    ),
    aten.index_put.default: calls(
        mask=lambda draw: call(draw(4, 5), [draw(4, 5, dtype=torch.bool)], torch.tensor(7.0)),
        add=lambda draw: call(draw(4, 5), [torch.tensor([0, 2, 0])], draw(3, 5), True),
        negative=lambda draw: call(draw(4, 5), [None, torch.tensor([-1, 2])], draw(4, 2)),
    ),
    aten.scatter_reduce.two: calls(
        mean=lambda draw: call(draw(4, 5), 0, torch.tensor([[0, 1, 1, 3, 3]]), draw(1, 5), "mean"),
        alone=lambda draw: call(
            draw(4, 5), 1, torch.tensor([[0], [1], [0], [2]]), draw(4, 2), "amax", include_self=False
        ),
    ),
    aten.convolution.default: calls(
        plain=lambda draw: call(
            draw(2, 4, 7, 8), draw(6, 2, 3, 3), draw(6), [2, 1], [1, 0], [1, 2], False, [0, 0], 2
        ),
        transposed=lambda draw: call(
            draw(2, 4, 5, 6), draw(4, 3, 3, 2), draw(6), [2, 2], [1, 0], [1, 2], True, [1, 0], 2
        ),
        line=lambda draw: call(draw(2, 3, 9), draw(4, 3, 3), None, [1], [1], [1], False, [0], 1),
    ),
    aten.convolution_backward.default: calls(
        all=lambda draw: call(
            draw(2, 6, 3, 4),
            draw(2, 4, 7, 8),
            draw(6, 2, 3, 3),
            [6],
            [2, 2],
            [0, 1],
            [1, 1],
            False,
            [0, 0],
            2,
            [True, True, True],
        )
    ),
    aten.max_pool2d_with_indices.default: calls(
        nan=lambda draw: call(draw(2, 3, 7, 8, special=True), [3, 2], [2, 2], [1, 1]),
        ceil=lambda draw: call(draw(3, 7, 8), [3, 3], [2, 2], [0, 0], [1, 1], True),
    ),
    aten.avg_pool2d_backward.default: calls(
        uncounted=lambda draw: call(
            draw(2, 3, 4, 4), draw(2, 3, 7, 8), [3, 3], [2, 2], [1, 1], False, False, None
        )
    ),
    aten._adaptive_avg_pool2d_backward.default: calls(
        uneven=lambda draw: call(draw(2, 3, 3, 2), draw(2, 3, 7, 8))
    ),
    aten.embedding_dense_backward.default: calls(
        padded=lambda draw: call(draw(6, 4), torch.tensor([0, 3, 3, 1, 0, 2]), 5, 3, False)
    ),
    aten.logcumsumexp.default: calls(rows=lambda draw: call(draw(4, 9), 1)),
    aten.as_strided.default: calls(windows=lambda draw: call(draw(12), [4, 3], [2, 1], 1)),
}


def cases() -> list[tuple[Any, Sample]]:
    """The first sample of each operator, an awkward one, and our own."""
    from nbcompile.backends.xla.registry import lowerings

    found = []
    for place, target in enumerate(lowerings()):
        entry = registry().find(target)
        given = OWN.get(target, [])
        samples = entry.samples if entry is not None else SAMPLES.get(target, [])
        if not given:
            kinds = {kind: s for s in samples for kind in AWKWARD if kind in s.name}
            picked = [kinds[kind] for kind in sorted(kinds)][place % 3 :: 3][:1]
            given = [*samples[:1], *picked]
        found += [(target, sample) for sample in given]
    return found


def one_graph(calls: list[AtenGraph]) -> AtenGraph:
    """Several graphs side by side in one."""
    graph, outputs = fx.Graph(), []
    places: dict[fx.Node, fx.Node] = {}
    for each in calls:
        for node in each.module.graph.find_nodes(op="placeholder"):
            places[node] = graph.placeholder(f"in{len(places)}")
            places[node].meta.update(node.meta)
    for each in calls:
        outputs += graph.graph_copy(each.module.graph, places)
    graph.output(tuple(outputs))
    ids = {node.name: f"g0.fw.n{n}" for n, node in enumerate(graph.nodes)}
    return AtenGraph("g0.fw", "forward", fx.GraphModule(torch.nn.Module(), graph), ids)


def test_there_are_samples_of_nearly_all() -> None:
    from nbcompile.backends.xla import supported
    from nbcompile.backends.xla.registry import lowerings

    sampled = {target for target, _ in cases()}
    assert len(lowerings()) == len(supported()) > 230
    assert len(sampled) > 0.9 * len(lowerings())


@few(2)
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_lowerings_agree_with_eager(part: int) -> None:
    from nbcompile.backends.xla.compile import compile_aten

    graphs, inputs, wanted = [], [], []
    for target, sample in cases()[part::PARTS]:
        args, kwargs = sample.make(torch.Generator().manual_seed(0))
        graph, read = call_graph(target, args, kwargs)
        graphs.append(graph)
        inputs += read
        eager = as_list(target(*args, **kwargs))
        try:
            wide = as_list(target(*map(_wide, args), **{name: _wide(v) for name, v in kwargs.items()}))
        except (RuntimeError, TypeError, NotImplementedError):
            wide = None
        wanted.append((target, sample, eager, wide))
    results = list(compile_aten(one_graph(graphs), Recorder(Options()), {}).call(inputs))
    wrong = []
    for target, sample, eager, wide in wanted:
        mine, results = results[: len(eager)], results[len(eager) :]
        try:
            compare(mine, eager, wide)
        except AssertionError as error:
            wrong.append(f"{target} {sample.name}: {error}")
    assert not wrong, "\n\n".join(wrong)


def test_what_depends_on_values_is_refused() -> None:
    from nbcompile.backends.xla.compile import compile_aten
    from nbcompile.errors import BackendError

    mask = torch.tensor([True, False, True])
    graph, _ = call_graph(aten.index_put.default, (tensor(torch.Generator(), 3), [mask], torch.ones(2)), {})
    with pytest.raises(BackendError, match="a mask picks depends on its values"):
        compile_aten(graph, Recorder(Options()), {})
