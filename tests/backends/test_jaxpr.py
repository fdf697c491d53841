"""A jaxpr as a captured graph, by itself and evaluated one primitive at a time. Needs jax."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax", reason="pip install jax")

import jax
import jax.extend
import jax.numpy as jnp

from nbcompile.backends.xla.imported import when_imported
from nbcompile.backends.xla.jaxpr import Caller, JaxprRecord, on_mesh, record_jaxpr, scope_in, without_scopes
from nbcompile.backends.xla.jaxpr_values import in_float64, one_by_one
from nbcompile.record.compilation import Node

CELL = "<cell of jaxpr tests>"
SOURCE = """\
@jax.jit
def twice(z):
    return jnp.where(z > 0, z, 0.0) * 2
def f(x, w):
    for _ in range(2):
        x = jnp.tanh(x @ w)
    a = twice(x)
    b = twice(a)
    c = jnp.where(b > 1, b, 1.0)
    last, seen = jax.lax.scan(
        lambda s, v: (jnp.sin(s) + v,
                      s * 2), c[0], c)
    return last + seen.sum(0)
"""


def function() -> Any:
    scope: dict[str, Any] = {"jax": jax, "jnp": jnp}
    exec(compile(SOURCE, CELL, "exec"), scope)
    return scope["f"]


def arrays() -> tuple[Any, Any]:
    return jnp.linspace(-1, 1, 12).reshape(3, 4), jnp.linspace(0, 1, 16).reshape(4, 4)


def recorded(fn: Any, *given: Any) -> JaxprRecord:
    traced = jax.jit(fn).trace(*given)
    names = traced.jaxpr.jaxpr.debug_info.arg_names
    caller = Caller((), CELL, inspect.unwrap(fn).__code__)
    return record_jaxpr(traced.jaxpr, "f", "jaxpr of f", caller, names)


def lines(node: Node) -> list[int]:
    return [span.line for span in node.spans if not span.file]


def of(record: JaxprRecord, op: str) -> list[Node]:
    return [node for node in record.graph.nodes if node.op == op]


def test_equations_stand_at_their_lines_and_columns() -> None:
    record = recorded(function(), *arrays())
    product, other = of(record, "dot_general")
    assert product.kind == "library" and product.shape == (3, 4) and product.dtype == "float32"
    assert product.bytes == 48 and product.inputs == ("f.jaxpr.x", "f.jaxpr.w")
    (span,) = product.spans
    text = SOURCE.splitlines()[span.line - 1]
    assert text[span.column : span.end_column] == "x @ w"
    assert other.inputs == ("f.jaxpr.tanh", "f.jaxpr.w")
    assert record.graph.stage == "fx" and "tanh" in record.graph.text and "{ lambda" in record.graph.text
    assert [node.name for node in record.graph.nodes if node.kind == "input"] == ["x", "w"]
    assert record.graph.outputs == (record.graph.nodes[-1].id,)


def test_a_function_that_is_traced_once_has_the_lines_of_each_call() -> None:
    """jax keeps the jaxpr of an inner jit and of ``jnp.where``: it knows the first caller only."""
    first, second, third = of(recorded(function(), *arrays()), "select_n")
    assert lines(first) == [7, 3] and lines(second) == [8, 3] and lines(third) == [9]


def test_a_loop_is_a_node_with_the_lines_of_its_body() -> None:
    (scan,) = of(recorded(function(), *arrays()), "scan")
    assert {10, 11, 12} <= set(lines(scan)) and scan.note.startswith("3 steps of ")


def test_numbers_are_written_and_constants_are_nodes() -> None:
    table = jnp.arange(3.0)
    record = recorded(lambda x: x * 2.5 + table, table)
    (product,) = of(record, "mul")
    assert product.text.startswith("mul = mul(x, 2.5)")
    assert [node.kind for node in record.graph.nodes[:2]] == ["constant", "input"]
    assert len(record.inputs) == 2


def test_each_scope_names_its_equation() -> None:
    record = recorded(function(), *arrays())
    named = jax.extend.core.jaxpr_as_fun(record.named)
    hlo = jax.jit(lambda *given: named(*given)).lower(*arrays()).compile().as_text()
    found = {scope_in(part.split('"')[1]) for part in hlo.split("op_name=")[1:]}
    ops = {record.nodes[scope].op for scope in found if scope in record.nodes}
    assert {"dot_general", "tanh", "scan"} <= ops
    assert "nbcompile_" in hlo and "nbcompile_" not in without_scopes(hlo)
    assert "stack_frame_id" not in without_scopes(hlo) and "FileNames" not in without_scopes(hlo)


@pytest.mark.parametrize(
    ("text", "scope", "shown"),
    [
        ("jit(f)/nbcompile_3/tanh", 3, "jit(f)/tanh"),
        ("jit(f)/jvp(nbcompile_4)/jit(g)/nbcompile_12/mul", 12, "jit(f)/jvp()/jit(g)/mul"),
        ("jit(f)/my_nbcompile_3/tanh", None, "jit(f)/my_nbcompile_3/tanh"),
        ("x", None, "x"),
    ],
)  # fmt: skip
def test_scopes_are_read_and_taken_out(text: str, scope: int | None, shown: str) -> None:
    assert scope_in(text) == scope and without_scopes(text) == shown


def branches(x: Any) -> Any:
    y = jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 1.5), (0, y))[1]


def drawn(x: Any) -> Any:
    return x + jax.random.uniform(jax.random.key(3), x.shape)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jax.lax.scan(lambda s, v: (jnp.sin(s) + v, s), x[0], x)[0],
        branches,
        pytest.param(drawn, marks=pytest.mark.nightly),
        jax.value_and_grad(lambda x: jax.nn.relu(x).sum() ** 3),
        lambda x: jnp.sort(x.astype(jnp.bfloat16) * 1.3, axis=0),
        jax.checkpoint(lambda x: jnp.log1p(jnp.exp(x))),
    ],
    ids=["loops", "branches", "random", "gradient", "bfloat16", "checkpoint"],
)
def test_one_primitive_at_a_time_gives_what_the_function_gives(fn: Any) -> None:
    x = arrays()[0]
    wanted = jax.tree.leaves(jax.jit(fn)(x))
    closed = jax.jit(fn).trace(x).jaxpr
    got, wide = one_by_one(closed, [x]), in_float64(closed, [x])
    for one, double, two in zip(got, wide, wanted, strict=True):
        assert one.dtype == two.dtype and str(double.dtype) == "float64"
        loose = 2e-2 if str(two.dtype) == "bfloat16" else 2e-5
        for each in (one, double):
            np.testing.assert_allclose(
                np.asarray(each, "float64"), np.asarray(two, "float64"), rtol=loose, atol=loose
            )
    if fn is not drawn:
        errors = [
            np.abs(np.asarray(a, "float64") - np.asarray(b)).max() for a, b in zip(wanted, wide, strict=True)
        ]
        assert max(errors) > 0, "more digits than float32 has"


def test_what_a_mesh_runs_is_found() -> None:
    mesh = jax.make_mesh((1,), ("d",))
    spec = jax.sharding.PartitionSpec()
    inner = jax.shard_map(jnp.sin, mesh=mesh, in_specs=spec, out_specs=spec)
    closed = jax.jit(lambda x: jax.jit(inner)(x) + 1).trace(arrays()[0]).jaxpr
    assert on_mesh(closed) and not on_mesh(jax.jit(jnp.sin).trace(1.0).jaxpr)


# -- imports -------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "late_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "late_module", raising=False)
    return "late_module"


def test_told_once_a_module_is_imported_and_not_by_a_look(module: str) -> None:
    told: list[int] = []
    finders = list(sys.meta_path)
    when_imported(module, lambda: told.append(sys.modules[module].value))
    assert importlib.util.find_spec(module) is not None and not told
    made = importlib.import_module(module)
    assert told == [1] and sys.meta_path == finders
    assert made.__loader__ is made.__spec__.loader and type(made.__loader__).__name__ == "SourceFileLoader"
    when_imported(module, lambda: told.append(2))
    assert told == [1, 2]
    sys.modules.pop(module)


def test_not_told_once_it_is_undone(module: str) -> None:
    told: list[int] = []
    finders = list(sys.meta_path)
    when_imported(module, lambda: told.append(1))()
    importlib.import_module(module)
    assert not told and sys.meta_path == finders
    sys.modules.pop(module)
