"""Jitted functions on several devices: shardings and collectives in the record. In a process of its own, to
whose jax the CPU is four devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nbcompile.record.compilation import Compilation

pytest.importorskip("jax", reason="pip install jax")
pytest.importorskip("IPython")

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

SCRIPT = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from nbcompile.notebook import magics

shell, records = InteractiveShell.instance(), []
magics.show = lambda record, options, place: records.append(record.to_json())
shell.run_line_magic("colors", "nocolor")
shell.run_line_magic("load_ext", "nbcompile")
shell.run_line_magic("config", "NbCompile.bench_seconds = 0.05")
for cell in json.load(sys.stdin):
    assert shell.run_cell(cell, store_history=True).success, cell
with open(sys.argv[1], "w") as file:
    json.dump(records, file)
"""
CELLS = [
    """%%compile --backend xla
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("data",))
rows = NamedSharding(mesh, P("data"))
layer = jax.jit(lambda x, w: jnp.tanh(x @ w).sum(0), in_shardings=(rows, None))
total = layer(jnp.ones((8, 4)), jnp.ones((4, 6)))""",
    """%%compile --backend xla
def centred(v):
    return v - jax.lax.pmean(v, "i")
spread = jax.pmap(centred, axis_name="i")(jnp.arange(8.0).reshape(4, 2))""",
    """%%compile --backend xla --no-bench
gather = jax.shard_map(
    lambda v: jax.lax.all_gather(jnp.sin(v), "data", tiled=True),
    mesh=mesh, in_specs=P("data"), out_specs=P(), check_vma=False)
whole = jax.jit(gather)(jax.device_put(jnp.ones((8, 4)), rows))""",
    """%%compile --backend xla
x = jax.device_put(jnp.linspace(0, 1, 32).reshape(8, 4), rows)
w = jax.device_put(jnp.linspace(0, 2, 12).reshape(4, 3), NamedSharding(mesh, P()))
grad = jax.jit(jax.grad(lambda w, x: jnp.exp(x @ w).mean()))(w, x)""",
]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Compilation]:
    out = tmp_path_factory.mktemp("devices") / "records.json"
    flags = "--xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(out)],
        input=json.dumps(CELLS),
        text=True,
        capture_output=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [Compilation.from_json(text) for text in json.loads(out.read_text())]


def node(record: Compilation, graph: str, op: str) -> Any:
    return next(each for each in record.graph(graph).nodes if each.op == op)


def test_in_shardings(records: list[Compilation]) -> None:
    record = records[0]
    assert record.notes == (
        "<lambda> (line 7) runs on 4 devices (cpu). x: P('data') over data=4, [2, 4] on each; w: whole on "
        "each; the result: whole on each. Between them: 1 all-reduce.",
    )
    x, w = (each for each in record.graph("lambda.jaxpr").nodes if each.op == "input")
    assert x.note == "P('data') over data=4, [2, 4] on each" and w.note == "whole on each"
    assert node(record, "lambda.fused", "input").shape == (2, 4), "what one device holds"
    reduced = node(record, "lambda.fused", "all-reduce")
    assert reduced.kind == "library" and reduced.note.startswith("a collective: between the devices ")
    assert reduced.origins == ("lambda.jaxpr.reduce_sum",)
    assert {each.contestant for each in record.measurements} == {"eager", "xla"}
    assert all(item.agrees and item.error is not None for item in record.accuracy)


def test_pmap(records: list[Compilation]) -> None:
    record = records[1]
    jaxpr = record.graph("centred.jaxpr")
    assert jaxpr.title == "jaxpr of pmap of centred"
    assert jaxpr.nodes[0].name == "v"
    assert node(record, "centred.jaxpr", "psum").note == "a collective over i"
    assert [span.line for span in node(record, "centred.jaxpr", "psum").spans] == [4, 3]
    assert node(record, "centred.fused", "all-reduce").spans
    assert (
        next(each for each in record.lines if each.line == 4).reason == "compiled by XLA: centred (jax.pmap)"
    )
    devices, untimed = record.notes
    assert devices.startswith("centred (line 4) runs on 4 devices") and "1 all-reduce" in devices
    assert untimed.startswith("Not timed without XLA (jitted functions): outside of jit")
    (xla,) = record.measurements
    assert xla.contestant == "xla" and xla.median
    (compared,) = record.accuracy
    assert compared.agrees and compared.max_difference == 0.0


def test_shard_map(records: list[Compilation]) -> None:
    record = records[2]
    gathered = node(record, "lambda.jaxpr", "all_gather")
    assert gathered.kind == "library" and gathered.note == "a collective over data"
    assert node(record, "lambda.fused", "all-gather").origins == (gathered.id,)
    assert "Between them: 1 all-gather." in record.notes[0]
    assert not record.measurements


def test_arrays_that_lie_on_a_mesh(records: list[Compilation]) -> None:
    """Their primitives are run one at a time on that mesh."""
    record = records[3]
    (note,) = record.notes
    assert "w: whole on each; x: P('data') over data=4, [2, 4] on each" in note and "1 all-reduce" in note
    assert [each.contestant for each in record.measurements if each.median] == ["eager", "xla"]
    (compared,) = record.accuracy
    assert compared.agrees and compared.error is not None and compared.error < 1e-5
