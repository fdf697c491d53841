"""A compilation of a trace as a record: graphs, kernels, breaks, in text and in the explorer's page."""

from __future__ import annotations

import pytest

from nbcompile import view
from nbcompile.record.compilation import Compilation
from nbcompile.record.provenance import Links
from nbcompile.traces.records.kernels import read_code
from nbcompile.traces.records.printed import read_graph
from nbcompile.traces.trace import Trace


def test_a_step_has_its_graphs_kernels_and_calls(step: Trace) -> None:
    record = step.compilation("0/0")
    assert Compilation.from_json(record.to_json()) == record
    stages = [graph.stage for graph in record.graphs]
    assert stages == ["fx", "joint", "forward", "backward", "fused", "fused"]
    fx = record.graph("g0")
    ops = [node.op for node in fx.nodes if node.kind not in ("input", "output")]
    assert ops == [
        "torch.nn.functional.linear",
        "torch.nn.functional.gelu",
        "torch.nn.functional.linear",
        "Tensor.softmax",
    ]
    assert [node.shape for node in fx.nodes if node.op == "Tensor.softmax"] == [(2, 4)]
    assert record.backend == "inductor" and record.kernels
    calls = [node for node in record.library_calls if node.op == "extern_kernels.addmm"]
    named = {node.id: node for graph in record.graphs for node in graph.nodes}
    assert [[named[id].op for id in node.origins] for node in calls] == [["aten.addmm.default"]] * 2
    for kernel in record.kernels:
        assert kernel.id in named and kernel.reads and kernel.writes and kernel.bytes_written > 0
        assert "extern" in kernel.sources["cpp"] and "async_compile" not in kernel.sources["cpp"]
    assert sum(kernel.bytes_read for kernel in record.kernels) > 0
    fused = [graph for graph in record.graphs if graph.stage == "fused"]
    for graph in fused:
        own = {node.id for node in graph.nodes}
        assert graph.outputs and all(set(node.inputs) <= own for node in graph.nodes)
        assert all(kernel.sources["cpp"] not in graph.text for kernel in record.kernels)


def test_lines_of_the_program_lead_to_what_was_made_of_them(trace: Trace) -> None:
    record = trace.compilation("0/0")
    file = trace["0/0"].file
    (relu,) = [node for node in record.graph("g0").nodes if node.op == "torch.relu"]
    assert [(span.line, span.file) for span in relu.spans] == [(10, file)]
    links = Links(record)
    assert {"aten.relu.default", "torch.relu"} <= {links.nodes[id].op for id in links.at_line(10, file)
                                                   if id in links.nodes}  # fmt: skip
    assert any("linked to the FX nodes of the same source line" in note for note in record.notes)


def test_breaks_guards_and_recompiles(trace: Trace) -> None:
    (found,) = trace.compilation("0/0").breaks
    assert found.kind == "Failed to trace builtin operator" and "print" in found.reason
    assert [(span.line, span.file) for span in found.spans] == [(11, trace["0/0"].file)]
    assert "reorderable_logging_functions" in found.hint
    guards = trace.compilation("0/0").guards
    (match,) = [guard for guard in guards if guard.kind == "TENSOR_MATCH"]
    assert match.name == "L['x']" and "size=[4, 8]" in match.code[0]
    # Dynamo cuts the beginning off the file's name; the record has it whole.
    assert match.spans[0].file == trace["0/0"].file
    told = trace["0/0"].metrics["guard_count"]
    assert len(guards) == pytest.approx(told, abs=6)
    again = trace.compilation("2/2").recompiles
    assert len(again) == 2 and again[0].reason.endswith("flag == True")
    failed = trace.compilation("3/0")
    assert failed.breaks[0].spans[0].line == 20 and failed.notes[0].startswith("It failed at ")


@pytest.mark.nightly
def test_steps_take_no_more_than_the_whole(step: Trace) -> None:
    for each in step:
        record = step.compilation(each.id)
        spent = sum(item.milliseconds for item in record.passes)
        assert record.passes and each.seconds is not None
        assert 0 < spent <= 1e3 * each.seconds * 1.2
    assert step.compilation("0/0#2").from_cache


@pytest.mark.nightly
def test_every_compilation_is_shown(trace: Trace, step: Trace) -> None:
    records = [each.compilation(compile.id) for each in (trace, step) for compile in each]
    for record in records:
        assert view.to_text(record) and view.to_html(record)
    page = view.to_page(records, script=False)
    assert "cpp_fused" in page and "graph break" in page


TRITON = """
# Topologically Sorted Source Nodes: [h, y], Original ATen: [aten.mul, aten.sum]
# Source node to ATen node mapping:
#   h => mul
#   y => sum_1
# Graph fragment:
triton_per_fused_mul_sum_0 = async_compile.triton('triton_per_fused_mul_sum_0', \'\'\'
import triton
@triton.jit
def triton_per_fused_mul_sum_0(in_out_ptr0, in_ptr0, out_ptr1, xnumel, XBLOCK : tl.constexpr):
    pass
\'\'\', device_str='cuda')

async_compile.wait(globals())

def partition_0(args):
    arg0_1, arg1_1 = args
    args.clear()
    buf0 = empty_strided_cuda((4, s0), (s0, 1), torch.bfloat16)
    buf1 = buf0; del buf0  # reuse
    buf2 = empty_strided_cuda((4, 1), (1, 4), torch.float32)
    # Topologically Sorted Source Nodes: [h], Original ATen: [aten.mul, aten.sum]
    # [Provenance debug handles] triton_per_fused_mul_sum_0:1
    stream0 = get_raw_stream(0)
    triton_per_fused_mul_sum_0.run(buf1, arg0_1, buf2, 4, stream=stream0)
    buf3 = torch.ops.aten.topk.default(reinterpret_tensor(buf2, (4, ), (1, ), 0), 1)
    buf4 = buf3[0]
    buf5 = buf4
    return (buf5, buf1, None, )

def benchmark():
    triton_per_fused_mul_sum_0.run(not_this)
"""


def test_triton_code_says_what_its_kernels_are_made_of() -> None:
    code = read_code(TRITON)
    (kernel,) = code.kernels.values()
    assert kernel.nodes == ("mul", "sum_1") and kernel.language == "triton" and kernel.outputs == (0, 2)
    assert kernel.source.startswith("import triton") and kernel.source.endswith("pass")
    assert [(step.op, step.reads, step.writes) for step in code.steps] == [
        ("triton_per_fused_mul_sum_0", ("arg0_1",), ("buf0", "buf2")),
        ("aten.topk.default", ("buf2",), ("buf3",)),
    ]
    assert code.inputs == ("arg0_1", "arg1_1") and code.forms["buf0"].shape == (4, "s0")
    assert code.forms["buf0"].device == "cuda" and "buf3" in code.outputs and "buf0" in code.outputs


PRINTED = """class GraphModule(torch.nn.Module):
    def forward(self, s0: "Sym(s0)", L_x_: "bf16[s0, 4][4, 1]cuda:1", L_n_ : int):
        l_x_ = L_x_

        # File: /a b/c.py:7 in f, code: y = f"# File: /etc/passwd:1 in g, {x}"
        mul: "bf16[s0, 4][4, 1]cuda:1" = l_x_ * 2
        gelu = torch._C._nn.gelu(mul, approximate = 'mul');  mul = None
        max_1 = torch.ops.aten.max.dim(gelu, -1);  gelu = None
        getitem: "bf16[s0][1]cuda:1" = max_1[0]
        body_0 = self.body_0
        while_loop = torch.ops.higher_order.while_loop(body_0, (
            getitem,
        ));  body_0 = None
        ??? what is this
        return (getitem, while_loop)

    class body_0(torch.nn.Module):
        def forward(self, arg: "f32[2]"):
            sin: "f32[2]" = arg.sin()
            return (sin,)
"""


def test_printed_graphs() -> None:
    found = read_graph(PRINTED, "g")
    assert [(node.name, node.op, node.kind) for node in found.nodes] == [
        ("s0", "placeholder", "input"),
        ("L_x_", "placeholder", "input"),
        ("L_n_", "placeholder", "input"),
        ("mul", "operator.mul", "compute"),
        ("gelu", "torch.nn.functional.gelu", "compute"),
        ("max_1", "aten.max.dim", "compute"),
        ("getitem", "operator.getitem", "view"),
        ("body_0", "get_attr", "constant"),
        ("while_loop", "higher_order.while_loop", "compute"),
        ("output", "output", "output"),
    ]
    named = {node.name: node for node in found.nodes}
    assert named["mul"].shape == ("s0", 4) and named["mul"].dtype == "bfloat16"
    assert named["mul"].spans[0].file == "/a b/c.py" and named["mul"].spans[0].line == 7
    assert named["gelu"].inputs == (named["mul"].id,) and named["mul"].inputs == (named["L_x_"].id,)
    assert found.inner == 1 and found.unread == 1
    assert found.outputs == (named["getitem"].id, named["while_loop"].id)


@pytest.mark.parametrize(
    "text", ["", "class X:", "def forward(", "def forward(self):\n" + "(" * 50_000, "\x00\ud800"]
)
def test_texts_that_are_no_graph_and_no_code(text: str) -> None:
    assert read_graph(text, "g").outputs == ()
    assert read_code(text).steps == ()
