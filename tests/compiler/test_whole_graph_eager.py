"""Every ``raise`` of the compiler that can leave a whole graph to eager is known here, with why it does.

What a lowering raises costs its node (held below), and what is raised of one kernel costs that kernel or its
node (``test_taken_apart.py``). All others are listed, so that a new one has to be thought about.
"""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile import errors
from nbcompile.compiler.lower.registry import registry
from tests.nightly import few

Tensor = torch.Tensor
COMPILER = Path(nbcompile.__file__).parent / "compiler"

# What is raised in these, as a graph is compiled, is raised inside a lowering: it costs that node.
OF_A_NODE = (
    "lower/operators/", "lower/fitting.py", "lower/constant_folding.py", "lower/unread_indices.py",
    "loop_ir/expr.py",
)  # fmt: skip
# In these it is raised of one kernel, inside each_kernel: it costs that kernel, or its node.
OF_A_KERNEL = (
    "codegen/c/", "codegen/triton/", "kernel_ir/", "schedule/", "fuse/legality.py", "passes.py",
)  # fmt: skip
# These do not run while a graph is compiled, or their users catch what they raise.
ELSEWHERE = {
    "attempt.py": "edited kernels",
    "capture/calls/light_entry.py": "when the graph runs: what Dynamo or the user raised, again",
    "capture/cell_to_function.py": "before there is a graph",
    "capture/function_to_fx.py": "other backends",
    "fuse/rules.py": "a mistake in an option, which is the user's to mend",
    "linear_cross_entropy/chunks.py": "when the graph runs",
    "linear_cross_entropy/rewrite.py": "a pattern that is not there",
    "lower/registry.py": "when the package is imported",
    "loop_ir/interpret.py": "the reference, in tests",
    "loop_ir/verify.py": "with the option verify",
    "rewrite/flex_attention.py": "a pattern that is not there",
    "runtime/artifacts.py": "a cache that is not there",
    "runtime/autotune/": "a measurement, which is left out",
    "runtime/cache.py": "a cache that is not there",
    "runtime/trust.py": "a file of the cache that is not there",
    "runtime/cuda_graphs/": "a replay, which is left out",
    "runtime/edit/": "edited kernels",
    "runtime/gpu/grid.py": "when the graph runs",
    "runtime/gpu/launch.py": "when the graph runs",
    "runtime/c/assembly.py": "edited kernels",
    "runtime/interpreter/": "when the graph runs",
    "warm/": "a cache that is not there",
}
# (file, function): why the whole graph has to run eagerly.
WHOLE = {
    (
        "capture/fixed_sizes.py",
        "fix_sizes",
    ): "no guard can name a size, so no call could be told from another",
    ("capture/lost/in_dynamo.py", "_constant_but_arrays"): "no graph: Dynamo asks whether it is a constant",
    ("capture/lost/refused.py", "*"): "a program that eager refuses, which says so",
    ("capture/fx_to_aten.py", "compile_one"): "AOTAutograd's own graph is wrong",
    ("capture/fx_to_aten.py", "_compiled"): "torch supposes a size that a branch does not give",
    ("compile_graph.py", "compile_graph"): "a device of neither target",
    ("compile_graph.py", "_changed_for_gpu"): "edited kernels",
    ("compile_graph.py", "_without_the_refused"): "there is no C compiler, or it took too long",
    ("compile_graph.py", "_taken_apart"): "a compiler that refuses no kernel by itself",
    ("compile_graph.py", "generate"): "nothing is left to take apart",
    ("fuse/loops_to_groups.py", "visit"): "a circle of kernels: a mistake of ours, and no kernel's",
    ("in_aten.py", "_of_classes"): "when the graph runs: eager's own error",
    ("in_aten.py", "as_traced"): "when the graph runs: traced with another shape than eager's",
    ("loop_ir/versions.py", "*"): "made anew with every value apart, and not raised then",
    ("lower/as_itself.py", "called"): "an operator of the program that writes to its argument",
    ("lower/as_itself.py", "check_memory"): "kernels on one device, tensors on another",
    ("lower/aten_to_loops.py", "aten_to_loops"): "the graph holds what is no tensor (a script object)",
    ("lower/aten_to_loops.py", "_returned"): "a sparse result, which keeps memory of ours",
    ("lower/aten_to_loops.py", "_check_sizes"): "a size that no argument tells",
    ("lower/aten_to_loops.py", "_lower_node"): "no operator of torch: it has no schema to call it by",
    ("lower/aten_to_loops.py", "_check_own_places"): "torch 2.11 traces a result as what it is not",
    (
        "lower/aten_to_loops.py",
        "_input",
    ): "an input that is no plain tensor, or a negative by a mark that is overwritten",
    ("lower/builder.py", "update"): "an input that is overwritten whose elements share memory",
    ("lower/outputs.py", "_output"): "a result that is no tensor, nor a number",
    ("lower/outputs.py", "_as_eager_does"): "a view of what no node of the graph makes by itself",
    ("lower/outputs.py", "_plain"): "a view that is given a tensor",
    ("lower/outputs.py", "_become"): "memory that an input is given, and no kernel makes as eager would",
    ("lower/outputs.py", "set_last"): "an input that is given other memory, and overwritten besides",
    ("lower/sizes.py", "_size"): "a size of which torch cannot even say what it may be",
    ("lower/sizes_of_data.py", "_ask"): "one call that gives several sizes at once",
    (
        "runtime/bind.py",
        "*",
    ): "the machine: a library that was built cannot be loaded; or when the graph runs",
    ("runtime/c/binary.py", "*"): "the machine has no C compiler, or no folder to write to",
    ("runtime/c/calls.py", "*"): "the machine: a library that was built cannot be loaded",
    ("runtime/c/toolchain.py", "*"): "the machine has no C compiler, or nothing is left to take apart",
    ("runtime/gpu/build.py", "*"): "the machine has no Triton, or nothing is left to take apart",
    ("runtime/gpu/compile.py", "*"): "the machine has no Triton, or nothing is left to take apart",
    ("runtime/gpu/libcuda.py", "*"): "the machine has no driver",
    ("runtime/gpu/text.py", "*"): "Triton's file is no Python",
    ("runtime/gpu/tools.py", "*"): "the machine has no Triton",
    ("runtime/gpu_module.py", "_that_fit"): "when the graph runs",
    ("runtime/gpu_module.py", "check_devices"): "a device of neither target",
    ("runtime/native.py", "*"): "the machine has no C compiler, or no folder to write to",
    ("runtime/interpreter/language_copy.py", "*"): "the machine has no Triton",
}
# In the same files: caught where they are raised from, as the sentence says.
CAUGHT = {
    ("lower/aten_to_loops.py", "_check_shapes"): "of a lowering: its node",
    ("lower/aten_to_loops.py", "_check_scatters"): "of a lowering: its node",
    ("lower/builder.py", "_result"): "of a lowering: its node",
    ("lower/builder.py", "element"): "of a lowering: its node",
    ("lower/builder.py", "check_dtype"): "of a lowering: its node",
    ("lower/builder.py", "broadcast"): "of a lowering: its node",
    ("lower/outputs.py", "_shown"): "the result is made by ATen's views",
    ("lower/outputs.py", "_check_offset"): "the result is made by ATen's views",
    ("lower/outputs.py", "_check_places"): "the result is made by ATen's views",
    ("lower/sizes.py", "to_index"): "Python computes the number",
    ("lower/sizes.py", "_float"): "Python computes the number",
    ("lower/sizes.py", "_computed_size"): "a fact that is left out",
}


def raises() -> set[tuple[str, str]]:
    """(file, function) of every ``raise`` of an exception in the compiler."""
    found: set[tuple[str, str]] = set()

    def visit(node: ast.AST, file: str, function: str) -> None:
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.Raise) and node.exc is not None:
            found.add((file, function))
        for child in ast.iter_child_nodes(node):
            visit(child, file, function)

    for path in COMPILER.rglob("*.py"):
        visit(ast.parse(path.read_text(encoding="utf-8")), path.relative_to(COMPILER).as_posix(), "")
    return found


def test_every_raise_is_known() -> None:
    unknown = {
        (file, function)
        for file, function in raises()
        if not file.startswith((*OF_A_NODE, *OF_A_KERNEL, *ELSEWHERE))
        and not {(file, function), (file, "*")} & (WHOLE.keys() | CAUGHT.keys())
    }
    assert not unknown, "say of each whether it costs a node, a kernel or the graph, and why"


def test_nothing_is_listed_that_is_not_there() -> None:
    there = raises()
    files = {file for file, _ in there}
    reraised = {("compile_graph.py", "generate")}  # the error that it has caught
    for file, function in (WHOLE.keys() | CAUGHT.keys()) - reraised:
        assert file in files if function == "*" else (file, function) in there, (file, function)
    for prefix in (*OF_A_NODE, *OF_A_KERNEL, *ELSEWHERE):
        assert any(file.startswith(prefix) for file in files), prefix


ERRORS = [
    errors.LoweringError("not so"), errors.SymbolicSizeError("not so"),
    KeyError("a mistake"), AssertionError("a mistake"), TypeError("a mistake"), ValueError("a mistake"),
    IndexError("a mistake"), ZeroDivisionError("a mistake"), NotImplementedError("a mistake"),
]  # fmt: skip


@few(4)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_a_lowering_raises_costs_its_node(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    torch._dynamo.reset()
    entry = registry().find(torch.ops.aten.sin.default)
    assert entry is not None

    def lower(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setitem(registry().lowerings, entry.target, dataclasses.replace(entry, lower=lower))

    def function(x: Tensor) -> Tensor:
        return ((x * 2).sin() + 1).exp().sum(1)

    run = nbcompile.compile(function, options={"cache": False})
    x = torch.randn(4, 5)
    torch.testing.assert_close(run(x), function(x))
    assert run.ran_compiled, run.eager_reason
    left = {node.op: node.note for node in run.compilation.fused_nodes if node.kind == "fallback"}
    assert [*left] == ["aten.sin"] and ("not so" in left["aten.sin"] or "a mistake" in left["aten.sin"])
    assert run.compilation.kernels


def test_a_sparse_gradient_says_what_makes_it() -> None:
    table = torch.nn.Embedding(10, 4, sparse=True)
    run = nbcompile.compile(lambda i: (table(i) * 2).sin().sum(), options={"cache": False})
    run(torch.tensor([1, 2, 1])).backward()
    assert table.weight.grad is not None and table.weight.grad.is_sparse
    assert "sparse_coo_tensor" in run.eager_reason and "makes a sparse tensor" in run.eager_reason
