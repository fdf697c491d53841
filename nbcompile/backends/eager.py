"""Dynamo's graph as it is, op by op: what capture alone costs and changes."""

from nbcompile.backends.base import Backend, of_torch

BACKEND = Backend(
    name="eager",
    summary="Dynamo's graph, run op by op",
    compiler=of_torch("eager"),
)
