# ruff: noqa: E501  (a table: a line a row)
"""Records that are absurd in size or shape: a million nodes, a text of a hundred megabytes, all linked to all."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

from nbcompile.record.compilation import SCHEMA


def _file(**fields: Any) -> str:
    text = json.dumps({"schema": SCHEMA, "id": "x", **fields})
    deflate = base64.b64encode(zlib.compress(text.encode(), 1)).decode()
    return json.dumps({"schema": SCHEMA, "id": "x", "title": "a stranger's", "deflate": deflate})


def _node(id: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "name": id, "op": "add", "kind": "pointwise", **fields}


def _graph(nodes: list[dict[str, Any]], stage: str = "fx", id: str = "g", **fields: Any) -> dict[str, Any]:
    return {"id": id, "stage": stage, "title": "t", "nodes": nodes, **fields}


def _kernel(id: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": id,
        "name": id,
        "graph": "g",
        "loops": [],
        "schedule": "rows",
        "sources": {"c": "x;"},
        **fields,
    }


def chain(count: int) -> str:
    """Nodes of which each was made from the one before, and reads it."""
    nodes = [_node(f"n{n}", inputs=[f"n{n - 1}"] if n else [], origins=[f"n{n - 1}"] if n else [],
                   spans=[{"line": n % 50 + 1}]) for n in range(count)]  # fmt: skip
    source = "%%compile\n" + "\n".join(f"x = x + {n}" for n in range(50))
    return _file(graphs=[_graph(nodes, "fused")], cell={"source": source})


def dense(count: int) -> str:
    """Every node reads and was made from every other."""
    ids = [f"n{n}" for n in range(count)]
    return _file(graphs=[_graph([_node(id, inputs=ids, origins=ids) for id in ids], "loops")])


def circle(count: int) -> str:
    nodes = [
        _node(f"n{n}", inputs=[f"n{(n + 1) % count}"], origins=[f"n{(n + 1) % count}"]) for n in range(count)
    ]
    return _file(graphs=[_graph(nodes, "fused", parent="g")])


def _parents(count: int) -> str:
    graphs = [_graph([], id=f"g{n}", parent=f"g{(n + 1) % count}") for n in range(count)]
    return _file(graphs=graphs)


def _modules(depth: int) -> str:
    path = ".".join(["m"] * depth)
    return _file(graphs=[_graph([_node(f"n{n}", module=path) for n in range(3)])])


def _many(field: str, count: int, item: Callable[[int], Any]) -> str:
    return _file(**{field: [item(n) for n in range(count)]})


SIZES: dict[str, Callable[[], str]] = {
    "chain of 3,000": lambda: chain(3_000),
    "chain of 50,000": lambda: chain(50_000),
    "dense 400": lambda: dense(400),
    "circle of 2,000": lambda: circle(2_000),
    "circle of parents": lambda: _parents(500),
    "a graph that is its own parent": lambda: _file(graphs=[_graph([], parent="g"), _graph([], parent="g")]),
    "deep modules": lambda: _modules(3_000),
    "one id for all": lambda: _file(graphs=[_graph([_node("n", inputs=["n"], origins=["n", "g"]) for _ in range(2_000)])],
                                    kernels=[_kernel("n", loops=["n"] * 2_000) for _ in range(50)]),
    "a million nodes": lambda: _file(graphs=[_graph([_node("n")] * 1_000_000)]),
    "a million notes": lambda: _file(notes=["n"] * 1_000_000),
    "a million guards": lambda: _many("guards", 300_000, lambda n: {"graph": "g", "kind": "K", "name": "L['x']"}),
    "10,000 graphs": lambda: _many("graphs", 10_000, lambda n: _graph([_node(f"n{n}")], "fx", f"g{n}")),
    "20,000 kernels": lambda: _many("kernels", 20_000, lambda n: _kernel(f"k{n}")),
    "100,000 decisions": lambda: _many("decisions", 100_000, lambda n: {
        "id": f"d{n}", "graph": "g", "producer": f"a{n % 7}", "consumer": f"b{n % 5}", "kind": "siblings",
        "accepted": False, "code": "c", "reason": "r"}),
    "kernels and decisions of one loop": lambda: _file(
        kernels=[_kernel(f"k{n}", loops=["a", "b"]) for n in range(2_000)],
        decisions=[{"id": f"d{n}", "graph": "g", "producer": "a", "consumer": "b", "kind": "siblings",
                    "accepted": True, "code": "c", "reason": "r"} for n in range(2_000)]),
    "a text of 20 MB": lambda: _file(kernels=[_kernel("k", sources={"c": "int x;\n" * 3_000_000})]),
    "a line of 20 MB": lambda: _file(kernels=[_kernel("k", sources={"c": "x" * 20_000_000})]),
    "a text of 100 MB": lambda: _file(kernels=[_kernel("k", sources={"c": "int x;  \n" * 11_200_000})]),
    "a cell of a million lines": lambda: _file(cell={"source": "%%compile\n" + "x\n" * 1_000_000}),
    "spans over everything": lambda: _file(
        cell={"source": "%%compile\n" + "x\n" * 100},
        graphs=[_graph([_node(f"n{n}", spans=[{"line": -5, "end_line": 2**53}] * 20) for n in range(500)])]),
    "a line map of a million": lambda: _file(
        kernels=[_kernel("k", line_map=[{"line": n, "origins": ["a"]} for n in range(300_000)])]),
    "a shape of a million": lambda: _file(graphs=[_graph([_node("n", shape=[1] * 1_000_000, dtype="float32")])]),
    "many samples": lambda: _file(measurements=[
        {"what": "cell", "contestant": "nbcompile", "steady": [1e-6] * 1_000_000, "ran_compiled": True},
        {"what": "cell", "contestant": "eager", "steady": [2e-6] * 1_000_000}]),
    "many measurements": lambda: _many("measurements", 20_000, lambda n: {
        "what": f"cell {n}", "contestant": f"c{n}", "steady": [1e-6, 2e-6], "ran_compiled": True}),
    "many candidates": lambda: _many("autotune", 50_000, lambda n: {
        "kernel": f"k{n % 100}", "candidate": f"XBLOCK={n}", "seconds": n * 1e-6}),
    "many constants": lambda: _file(kernels=[_kernel("k", launches=[
        {"function": "f", "grid": [1] * 1_000, "constants": {f"C{n}": n for n in range(10_000)}}] * 20)]),
    "a million options": lambda: _file(options={f"o{n}": [n] for n in range(200_000)}),
    "a long walk": lambda: _file(walks=[{
        "frame": "f", "attempt": 0, "ended": "break", "codes": [{"name": "f"}], "words": ["w"],
        "instructions": [{"code": 0, "offset": 0, "name": "LOAD"}], "steps": [{"at": 0, "depth": n} for n in range(50_000)]}]),
    "a walk out of its tables": lambda: _file(walks=[{
        "frame": "f", "attempt": 0, "ended": "returned", "codes": [], "words": [],
        "instructions": [{"code": 9, "offset": -1, "name": "LOAD"}],
        "steps": [{"at": 7, "depth": -3, "kept": -9, "pushed": [5, -1], "stored": [1]}]}]),
    "a walk that keeps 2^53": lambda: _file(walks=[{
        "frame": "f", "attempt": 0, "ended": "returned", "codes": [{"name": "f"}], "words": ["a"],
        "instructions": [{"code": 0, "offset": 0, "name": "LOAD"}],
        "steps": [{"at": 0, "kept": 2**53, "pushed": [0] * 50_000}, {"at": 0, "kept": 2**53, "pushed": [0] * 50_000}]}]),
}  # fmt: skip
