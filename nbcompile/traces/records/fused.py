"""What Inductor runs, as a graph of the record: kernels and calls, linked to ATen nodes where it says so."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nbcompile.record.compilation import Graph, Kernel, Node
from nbcompile.traces.records.kernels import BufferForm, OutputCode, RunStep

_SIZES = {"bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1}
_MADE = ("compute", "view", "constant")


def fused_graph(code: OutputCode, aten: Graph) -> tuple[Graph, list[Kernel], bool]:
    """The fused graph below ``aten``, its kernels, and whether some of these are linked to nothing."""
    names = {node.name: node.id for node in aten.nodes}
    known = _sizes(code, aten)
    nodes = [_input(code, aten.id, name, names) for name in code.inputs]
    makers = {name: f"{aten.id}.{name}" for name in code.inputs}
    calls = _calls_in_order(code, aten)
    only = _only_kernel(code, aten)
    kernels: list[Kernel] = []
    unlinked = False
    counted = {"k": 0, "c": 0}
    for number, step in enumerate(code.steps):
        kind = "k" if step.kernel else "c"
        id = f"{aten.id}.{kind}{counted[kind]}"
        counted[kind] += 1
        above = tuple(names[name] for name in _nodes_of(code, step) if name in names)
        above = above or (calls.get(number) or (only if step.kernel else ()))
        unlinked = unlinked or bool(step.kernel and not above)
        # What is written over is read too, where a step before made it.
        read = [name for name in (*step.reads, *step.writes) if name in makers]
        inputs = tuple(dict.fromkeys(makers[name] for name in read))
        nodes.append(_node(id, step, inputs, above, code.forms))
        if step.kernel:
            kernels.append(_kernel(id, step, code, f"{aten.id}.fused", known))
        makers |= dict.fromkeys(step.writes, id)
    outputs = tuple(dict.fromkeys(makers[name] for name in code.outputs if name in makers))
    graph = Graph(
        id=f"{aten.id}.fused",
        stage="fused",
        title=f"Inductor's kernels of {aten.id}",
        nodes=tuple(nodes),
        outputs=outputs,
        parent=aten.id,
        text=code.wrapper,
    )
    return graph, kernels, unlinked


def _nodes_of(code: OutputCode, step: RunStep) -> tuple[str, ...]:
    return code.kernels[step.kernel].nodes if step.kernel else ()


def _calls_in_order(code: OutputCode, aten: Graph) -> dict[int, tuple[str, ...]]:
    """Library calls by their place in the code: where there are as many of an operator as the graph has nodes
    of it, they are these, in order."""
    found: dict[int, tuple[str, ...]] = {}
    steps: dict[str, list[int]] = {}
    for number, step in enumerate(code.steps):
        if not step.kernel:
            steps.setdefault(_short(step.op), []).append(number)
    for op, places in steps.items():
        nodes = [
            node.id for node in aten.nodes if node.op.startswith("aten.") and node.op.split(".")[1] == op
        ]
        if len(nodes) == len(places):
            found |= {place: (node,) for place, node in zip(places, nodes, strict=True)}
    return found


def _short(op: str) -> str:
    """``addmm`` of ``extern_kernels.addmm``, ``topk`` of ``aten.topk.default``."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def _only_kernel(code: OutputCode, aten: Graph) -> tuple[str, ...]:
    """Where one kernel is all there is beside no library call, it is made of all that is computed."""
    if len(code.steps) != 1 or not code.steps[0].kernel:
        return ()
    return tuple(node.id for node in aten.nodes if node.kind in _MADE)


def _input(code: OutputCode, graph: str, name: str, names: Mapping[str, str]) -> Node:
    form = code.forms.get(name, BufferForm((), ()))
    known = name in code.forms
    return Node(
        id=f"{graph}.{name}",
        name=name,
        op="input",
        kind="input",
        origins=(names[name],) if name in names else (),
        shape=form.shape if known else None,
        stride=form.stride if known else None,
        dtype=form.dtype,
        text=f"{name} = input",
    )


def _node(
    id: str, step: RunStep, inputs: tuple[str, ...], above: tuple[str, ...], forms: Mapping[str, BufferForm]
) -> Node:
    made = [forms[name] for name in step.writes if name in forms]
    form = made[-1] if made else None
    return Node(
        id=id,
        name=step.kernel or (step.writes[0] if step.writes else step.op),
        op=step.op,
        kind="kernel" if step.kernel else "library",
        inputs=inputs,
        origins=above,
        shape=form.shape if form else None,
        stride=form.stride if form else None,
        dtype=form.dtype if form else None,
        bytes=sum(_bytes(each) for each in made),
        text=step.text,
    )


def _kernel(id: str, step: RunStep, code: OutputCode, graph: str, known: Mapping[str, int]) -> Kernel:
    made = code.kernels[step.kernel]
    target = "cpu" if made.language == "cpp" else _device(code)
    return Kernel(
        id=id,
        name=made.name,
        graph=graph,
        loops=(),
        schedule=_schedule(made.name, made.source),
        sources={made.language: made.source},
        reads=step.reads,
        writes=step.writes,
        bytes_read=sum(known.get(name, 0) for name in step.reads),
        bytes_written=sum(known.get(name, 0) for name in step.writes),
        target=target,
    )


def _device(code: OutputCode) -> str:
    return next((form.device for form in code.forms.values() if form.device not in ("", "cpu")), "cuda")


def _schedule(name: str, source: str) -> str:
    """``pointwise``, ``reduction``, by the name that Inductor gives a Triton kernel."""
    kinds = {"poi": "pointwise", "red": "reduction", "per": "persistent reduction", "tem": "template"}
    parts = name.split("_")
    if parts[0] == "triton" and len(parts) > 1 and parts[1] in kinds:
        return kinds[parts[1]]
    return "loops" if "for(int64_t" in source or "for (" in source else "kernel"


def _sizes(code: OutputCode, aten: Graph) -> dict[str, int]:
    """Bytes of buffers; of inputs as the ATen graph has them."""
    sizes = {node.name: node.bytes for node in aten.nodes}
    return sizes | {name: _bytes(form) for name, form in code.forms.items() if form.dtype}


def _bytes(form: BufferForm) -> int:
    if form.dtype is None or not all(isinstance(extent, int) for extent in form.shape):
        return 0
    digits = "".join(character for character in form.dtype if character.isdigit())
    item = _SIZES.get(form.dtype) or (int(digits) // 8 if digits else 0)
    return item * prod(int(extent) for extent in form.shape)
