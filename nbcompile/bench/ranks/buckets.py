"""Where DDP cuts a graph: Dynamo's DDPOptimizer, seen while it does.

It splits a graph of a module under DDP so that each piece's gradients fill a bucket, and calls the backend
with each piece. Its ``buckets`` attribute ("for testing/debugging purposes", private) is read after each
``compile_fn``; where a version of torch lacks either, there are no buckets, and :data:`MISSING` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from nbcompile.compiler.capture.fx_to_aten import user_name
from nbcompile.record.compilation import Compilation, Graph
from nbcompile.record.ranks import Bucket
from nbcompile.record.recorder import Recorder

MISSING = "this version of torch does not tell where DDPOptimizer cuts"


@contextmanager
def watched(recorder: Recorder, found: list[tuple[str, tuple[str, ...], int]]) -> Iterator[bool]:
    """While open, append (graph id, parameters, bytes) for each bucket of each graph that is cut. Yields
    whether this torch tells."""
    try:
        from torch._dynamo.backends.distributed import DDPOptimizer
    except ImportError:
        yield False
        return
    original = DDPOptimizer.compile_fn

    def compile_fn(self: Any, *args: Any, **kwargs: Any) -> Any:
        first = recorder.graph_count
        compiled = original(self, *args, **kwargs)
        for place, bucket in enumerate(getattr(self, "buckets", ())):
            found.append((f"g{first + place}", tuple(bucket.params), int(bucket.size)))
        return compiled

    DDPOptimizer.compile_fn = compile_fn  # type: ignore[method-assign]
    try:
        yield True
    finally:
        DDPOptimizer.compile_fn = original  # type: ignore[method-assign]


def buckets_of(found: list[tuple[str, tuple[str, ...], int]], compilation: Compilation) -> tuple[Bucket, ...]:
    """The cuts as part of the record; those of graphs that were made again (a recompile) included."""
    graphs = {graph.id: graph for graph in compilation.graphs}
    made: list[Bucket] = []
    for graph, parameters, size in found:
        fx = graphs.get(f"{graph}.fx")
        module, span = _start(fx) if fx is not None else ("", None)
        names = tuple(dict.fromkeys(user_name(name) for name in parameters))
        made.append(Bucket(len(made), names, size, "all-reduce", graph, module, span))
    return tuple(made)


def _start(graph: Graph) -> tuple[str, Any]:
    work = next((n for n in graph.nodes if n.kind not in ("input", "constant", "output") and n.spans), None)
    return (work.module, work.spans[-1]) if work is not None else ("", None)


def reducer_bytes(wrapper: torch.nn.parallel.DistributedDataParallel) -> tuple[int, ...]:
    """DDP's own buckets in bytes, in the order that their gradients became ready; empty where this version
    does not tell, and until DDP has made them: it does after its first steps, which use one for all."""
    try:
        data = wrapper._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    except (AttributeError, RuntimeError):
        return ()
    text = str(data.get("rebuilt_bucket_sizes") or "")
    return tuple(int(part) for part in text.split(",") if part.strip().isdigit())
