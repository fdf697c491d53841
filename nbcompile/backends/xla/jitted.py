"""A jitted function that a cell called, as parts of a record: jaxpr, StableHLO, HLO, kernels, shardings.

The program that is shown is the one that ran: jax keeps it, and asked again gives the same. Which equation
each of its instructions comes from is learnt from a second compile, of the same jaxpr with its equations
named; its text must be the same but for those names, or no links are shown.
"""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbcompile.backends.xla.calls import JittedCall
from nbcompile.backends.xla.hlo import HloModule, Instruction, parse
from nbcompile.backends.xla.hlo_record import COLLECTIVES, HloRecord, dtype_of
from nbcompile.backends.xla.jaxpr import JaxprRecord, record_jaxpr, scope_in, without_scopes
from nbcompile.record.compilation import Graph, Node, PassRecord, Span
from nbcompile.record.recorder import Part, Recorder
from nbcompile.units import bytes_text, count_text

_METADATA = re.compile(r", metadata=\{(?:[^{}\"]|\"(?:[^\"\\]|\\.)*\")*\}")
_NAME = re.compile(r"%[\w.\-]+")


@dataclass(frozen=True)
class JittedProgram:
    """A call with what was compiled for it. ``name`` is unique in its record: ids begin with it."""

    name: str
    call: JittedCall
    seconds: float

    @property
    def devices(self) -> tuple[Any, ...]:
        """The devices that it runs on."""
        return tuple(self.call.compiled.runtime_executable().local_devices())


def record_call(call: JittedCall, recorder: Recorder) -> JittedProgram:
    """Add what jax and XLA made of a call to a record."""
    recorder.progress(f"reading what XLA made of {call.name}")
    name = _free_name(call.name, recorder)
    shown = f"pmap of {call.name}" if call.mapped else call.name
    jaxpr = record_jaxpr(call.closed, name, f"jaxpr of {shown}", call.callers, call.arguments)
    hlo = call.compiled.as_text() or ""
    with call.settings():
        named, again = _compiled_again(call, jaxpr)
    if not _same(hlo, named):
        recorder.add(f"XLA made another program of {shown} when it was asked again: no links to its lines.")
        named = hlo
    steps = call.steps or again
    if not call.steps:
        recorder.add(
            f"{call.where} was compiled before this cell ran: its compile time is that of a second compile."
        )
    program = JittedProgram(name, call, sum(steps.values()))
    placed = _Placed(program, jaxpr)
    graph = dataclasses.replace(
        jaxpr.graph,
        nodes=tuple(
            dataclasses.replace(node, note=placed.notes.get(node.id, node.note)) for node in jaxpr.graph.nodes
        ),
    )
    recorder.add(graph)
    module = parse(named)
    maker = _Maker(program, jaxpr, placed.notes)
    recorder.extend(maker.parts(module, call.lowered.as_text(), without_scopes(named).strip()))
    recorder.extend(_passes(name, steps, _counted(program)))
    if told := placed.sentence(module):
        recorder.add(told)
    return program


def _free_name(name: str, recorder: Recorder) -> str:
    """A word that no id of the record begins with yet."""
    word = re.sub(r"\W+", "_", name).strip("_") or "f"
    word = f"{word}_" if word in ("fw", "bw") else word  # which say in an id what direction it is of
    taken = {graph.id.partition(".")[0] for graph in recorder.parts(Graph)}
    number, free = 1, word
    while free in taken:
        number += 1
        free = f"{word}_{number}"
    return free


def target_of(device: Any) -> str:
    """The chip that a device is, as kernels name it."""
    capability = str(getattr(device, "compute_capability", "") or "").replace(".", "")
    return f"cuda:{capability}" if capability.isdigit() else str(device.platform)


def _compiled_again(call: JittedCall, jaxpr: JaxprRecord) -> tuple[str, dict[str, float]]:
    """The optimised HLO of the jaxpr with named equations, and the seconds that it took."""
    import jax

    traced = call.traced
    params = {**traced._params, "jaxpr": jaxpr.named}
    made: Any = jax.stages.Traced  # whose constructor is not for everybody
    again = made(traced._meta_tys_flat, params, traced.in_tree, traced.out_tree, traced._consts)
    started = time.perf_counter()
    lowered = again.lower()
    between = time.perf_counter()
    text = lowered.compile().as_text() or ""
    return text, {"lower": between - started, "xla": time.perf_counter() - between}


def _same(one: str, other: str) -> bool:
    """Whether two modules are one program: the same but for metadata and what values are called."""
    return _bare(one) == _bare(other)


def _bare(text: str) -> str:
    names: dict[str, str] = {}
    start = max(0, text.find("\n%"))  # behind the tables of files and frames
    bare = _METADATA.sub("", text[start:] if start else text[max(0, text.find("\nENTRY")) :])
    return _NAME.sub(lambda found: names.setdefault(found.group(), f"%{len(names)}"), bare)


def _passes(name: str, steps: Mapping[str, float], counted: str) -> Iterator[PassRecord]:
    ends = {"trace": ("", "jaxpr"), "lower": ("jaxpr", "stablehlo"), "xla": ("stablehlo", "fused")}
    for step, seconds in steps.items():
        before, after = (f"{name}.{each}" if each else "" for each in ends[step])
        yield PassRecord(step, before, after, 1e3 * seconds, counted if step == "xla" else "")


class _Maker(HloRecord):
    """XLA's kernels of a jaxpr."""

    def __init__(self, program: JittedProgram, jaxpr: JaxprRecord, notes: Mapping[str, str]) -> None:
        super().__init__(program.name, target_of(program.devices[0]))
        callers = program.call.callers
        self.called = callers.spans(callers.frames)
        self.jaxpr = jaxpr
        self.notes = notes
        self.given = {node.id: node for node in jaxpr.graph.nodes}

    def origins_of(self, item: Instruction) -> tuple[str, ...]:
        """See :meth:`HloRecord.origins_of`."""
        node = self._node_of(item)
        return (node.id,) if node is not None else ()

    def spans_of(self, item: Instruction) -> tuple[Span, ...]:
        """See :meth:`HloRecord.spans_of`. What XLA made without saying of what is at least of this call."""
        node = self._node_of(item)
        return node.spans if node is not None else self.called

    def _node_of(self, item: Instruction) -> Node | None:
        scope = scope_in(item.op_name)
        return None if scope is None else self.jaxpr.nodes.get(scope)

    def parts(self, module: HloModule, stablehlo: str, hlo: str) -> Iterator[Part]:
        """The stages below the jaxpr, and the kernels."""
        by_place = self._parameters(module)
        made = self.entry(module, by_place.__getitem__)
        root = module.entry.root
        roots = root.operands if root.opcode == "tuple" else (root.name,)
        outputs = tuple(dict.fromkeys(id for name in roots for id in made.get(name, ())))
        name = self.prefix
        yield Graph(
            f"{name}.stablehlo", "loops", f"StableHLO of {name}", parent=f"{name}.jaxpr", text=stablehlo
        )
        yield Graph(
            f"{name}.loops", "loops", f"HLO instructions of {name}", tuple(self.loops),
            tuple(self.inner.get(id, id) for id in outputs), parent=f"{name}.jaxpr",
        )  # fmt: skip
        yield Graph(
            f"{name}.fused", "fused", f"XLA's kernels of {name}", tuple(self.fused), outputs,
            parent=f"{name}.loops", text=hlo,
        )  # fmt: skip
        for kernel in self.kernels:
            sources = {language: without_scopes(text) for language, text in kernel.sources.items()}
            yield dataclasses.replace(kernel, sources=sources)

    def _parameters(self, module: HloModule) -> dict[int, str]:
        """A node for each parameter of the program: an input of the jaxpr, of which XLA drops those that
        nothing reads."""
        found = [item for item in module.entry.instructions if item.opcode == "parameter"]
        found.sort(key=lambda item: int(item.literal))
        inputs: Sequence[str] = self.jaxpr.inputs
        by_name = {self.given[id].name: id for id in inputs}
        out: dict[int, str] = {}
        for place, item in enumerate(found):
            origin = inputs[place] if len(inputs) == len(found) else by_name.get(_word(item.op_name), "")
            name = origin.rpartition(".")[2] or item.name
            kind, shape = item.arrays[0] if item.arrays else ("", ())
            node = Node(
                f"{self.prefix}.{name}", name, "input", "input", origins=(origin,) if origin else (),
                shape=shape, dtype=dtype_of(kind), bytes=item.bytes, text=f"{name} = input",
                note=self.notes.get(origin, ""),
            )  # fmt: skip
            self.loops.append(node)
            self.fused.append(node)
            out[int(item.literal)] = node.id
        return out


def _word(name: str) -> str:
    """An argument as its node is called: ``params['w']`` is ``params_w``."""
    return re.sub(r"\W+", "_", name.replace("\\", "")).strip("_")


# -- where arrays lie ----------------------------------------------------------------------------------


class _Placed:
    """How arguments and results lie on the devices, in words."""

    def __init__(self, program: JittedProgram, jaxpr: JaxprRecord) -> None:
        self.program = program
        self.notes: dict[str, str] = {}
        self.results: list[str] = []
        self.names = {node.id: node.name for node in jaxpr.graph.nodes}
        if len(program.devices) < 2:
            return
        import jax

        shardings = jax.tree.leaves(program.call.compiled.input_shardings, is_leaf=lambda each: each is None)
        inputs = jaxpr.inputs[len(jaxpr.inputs) - len(shardings) :]
        for id, sharding, array in zip(inputs, shardings, program.call.arrays, strict=False):
            self.notes[id] = _lies(sharding, tuple(getattr(array, "shape", ())))
        outputs = jax.tree.leaves(program.call.compiled.output_shardings, is_leaf=lambda each: each is None)
        for var, sharding in zip(program.call.closed.jaxpr.outvars, outputs, strict=False):
            self.results.append(_lies(sharding, tuple(var.aval.shape)))

    def sentence(self, module: HloModule) -> str:
        """Devices, what lies where, and the collectives between them; empty on one device."""
        devices = self.program.devices
        if len(devices) < 2:
            return ""
        told = [f"{self.names[id]}: {note}" for id, note in self.notes.items() if note]
        if len(set(self.results)) == 1:
            told.append(f"{'each' if self.results[1:] else 'the'} result: {self.results[0]}")
        else:
            told += [f"result {place}: {note}" for place, note in enumerate(self.results)]
        counted = Counter(
            item.opcode.removesuffix("-start")
            for body in module.computations.values()
            for item in body.instructions
            if item.opcode in COLLECTIVES
        )
        between = [count_text(count, name) for name, count in counted.items()]
        last = f"Between them: {', '.join(between)}." if between else "They hand each other nothing."
        kind = str(getattr(devices[0], "device_kind", "") or devices[0].platform)
        return f"{self.program.call.where} runs on {len(devices)} devices ({kind}). {'; '.join(told)}. {last}"


def _lies(sharding: Any, shape: tuple[int, ...]) -> str:
    """``P('d') over d=4: [2, 4] on each``; ``whole on each``; empty where XLA has dropped it."""
    if sharding is None:
        return ""
    if sharding.is_fully_replicated:
        return "whole on each"
    part = list(sharding.shard_shape(shape))
    spec = getattr(sharding, "spec", None)
    if spec is None:
        return f"{part} on each"
    mesh = ", ".join(f"{axis}={size}" for axis, size in sharding.mesh.shape.items())
    axes = ", ".join(map(repr, spec))
    return f"P({axes}) over {mesh}, {part} on each"


def _counted(program: JittedProgram) -> str:
    """XLA's own estimate of the program's work and memory; empty where it gives none."""
    try:
        cost = program.call.compiled.cost_analysis() or {}
        memory = program.call.compiled.memory_analysis()
    except Exception:  # not every platform has them
        return ""
    flops, moved = cost.get("flops", 0.0), cost.get("bytes accessed", 0.0)
    held = getattr(memory, "temp_size_in_bytes", None)
    if not flops or held is None or not math.isfinite(flops):
        return ""
    return (
        f"XLA's own count: {flops:,.0f} operations, {bytes_text(int(moved))} accessed, "
        f"{bytes_text(held)} of memory for values in between"
    )
