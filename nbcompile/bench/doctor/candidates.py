"""Which switches are worth trying on a program, in the order in which they are tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nbcompile.backends import registry
from nbcompile.backends.base import Backend
from nbcompile.bench.doctor.patient import Patient, Surroundings, batch_of
from nbcompile.bench.doctor.switches import Switch
from nbcompile.bench.measure.state import Snapshot
from nbcompile.options import REPLAY_MODES
from nbcompile.record.advice.doctor import NotTried
from nbcompile.record.compilation import Compilation, Node
from nbcompile.settings import CompileSettings
from nbcompile.units import count_text

_NOT_FOR_SPEED = {
    "aot_eager": "it is there to look for errors with",
    "cudagraphs": "it replays eager's kernels; modes such as reduce-overhead replay compiled ones",
}
_ORDER = ("eager", "nbcompile", "inductor", "openvino", "onnxrt", "tensorrt", "xla", "thunder", "tvm")
"""Compilers, the likely and cheap ones first: a budget may end the list."""
_LATE = ("xla", "thunder", "tvm")
"""Tried after all else: they take long to load or to compile, or have no schedules of their own for a CPU."""
_PAIRS = 1
"""Fusion decisions that are overruled, of each kind: that with the most bytes at stake."""
_TIMES = 4
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose")


@dataclass(frozen=True)
class Suggestions:
    """What is to be tried, in order, and what is not, with the reason."""

    switches: tuple[Switch, ...]
    left: tuple[NotTried, ...]


def compilers(present: CompileSettings, device: str, train: bool) -> Suggestions:
    """Every compiler that is here, and each of its modes that means something on this device."""
    found, left = [], []
    known = registry.backends()
    for name in sorted(known, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)):
        backend = known[name]
        why = _why_not(backend, device, train)
        if why:
            left.append(NotTried(name, why))
            continue
        for mode in _modes(backend, device):
            if (name, mode) != (present.backend_name, present.mode or "default"):
                found.append(_compiler(name, mode))
    return Suggestions(tuple(found), tuple(left))


def suggestions(
    patient: Patient, present: CompileSettings, here: Surroundings, record: Compilation, mended: bool = False
) -> Suggestions:
    """All that could make ``patient`` faster than ``present``, of which ``record`` is the record. ``mended``:
    other sources are tried already."""
    tensors = list(Snapshot(patient.roots(), copies=False).tensors.values())
    device = next((t.device.type for t in tensors if t.device.type != "cpu"), "cpu")
    known = compilers(present, device, patient.train or patient.optimizer is not None)
    batches, no_batch = _batches(patient)
    found = [
        *_optimizers(patient),  # as eager as ever without, and often half of a step
        *_threads(device, here),
        *_layouts(patient, device, record, tensors),
        *(switch for switch in known.switches if not _is_late(switch)),
        *_precisions(patient, device, here, {tensor.dtype for tensor in tensors}),
        *_fusions(record),
        *_dynamic(present),
        *batches,
        *(switch for switch in known.switches if _is_late(switch)),
    ]
    left = [*known.left, *no_batch]
    if not any(switch.axis == "layout" for switch in found):
        left.append(NotTried("channels last", "there are no convolutions of images"))
    if record.breaks and not mended:
        breaks = count_text(len(record.breaks), "graph break")
        left.append(NotTried("dropping a graph break", f"of {breaks} none has an edited source to try"))
    return Suggestions(tuple(found), tuple(left))


def edited(name: str, patient: Patient, fn: Callable[..., Any], diff: tuple[str, ...]) -> Switch:
    """A switch to other source, e.g. without its graph break: ``fn`` takes what the program takes, and is to
    give what it gives, which is checked. ``diff``: its lines, each with its ``+`` or ``-``."""
    program = dataclasses.replace(patient, fn=fn).packed()
    return Switch(name, "source", diff=diff, program=program)


def _why_not(backend: Backend, device: str, train: bool) -> str:
    if device not in backend.devices:
        return f"its code does not run on {device}"
    if backend.name in _NOT_FOR_SPEED:
        return _NOT_FOR_SPEED[backend.name]
    if train and not backend.trains:
        return "it does not train"
    return backend.missing()


def _modes(backend: Backend, device: str) -> list[str]:
    """Without those that are another here: a CPU has no graphs to replay, and our own search is the GPU's."""
    if device != "cpu":
        return [mode for mode in backend.modes if mode != "lite"]
    own = ("max-autotune-no-cudagraphs", "max-autotune") if backend.name == "nbcompile" else ()
    return [mode for mode in backend.modes if mode not in (*REPLAY_MODES, "lite", *own)]


def _compiler(name: str, mode: str) -> Switch:
    told = name if mode == "default" else f"{name}, {mode}"
    option = f"--backend {name}" + (f" --mode {mode}" if mode != "default" else "")
    return Switch(told, "compiler", option, backend=name, mode=None if mode == "default" else mode)


def _is_late(switch: Switch) -> bool:
    return switch.backend in _LATE or (switch.mode or "").startswith("max-autotune")


def _fx_nodes(record: Compilation) -> Iterator[Node]:
    return (node for graph in record.of_stage("fx") for node in graph.nodes)


def _precisions(
    patient: Patient, device: str, here: Surroundings, kinds: set[torch.dtype]
) -> Iterator[Switch]:
    if torch.float32 not in kinds:
        return
    for dtype in ("bfloat16", "float16") if device != "cpu" else ("bfloat16",):
        diff = patient.with_each(f".to(torch.{dtype})")
        yield Switch(dtype, "precision", diff=diff, effect="precision", dtype=dtype)
    products = "medium" if device == "cpu" else "high"
    if here.products == "highest":
        name = "bfloat16 products" if products == "medium" else "TF32 products"
        diff = (f'+ torch.set_float32_matmul_precision("{products}")',)
        yield Switch(name, "precision", diff=diff, effect="precision", products=products)


def _threads(device: str, here: Surroundings) -> Iterator[Switch]:
    if device == "cpu" and here.threads > 1:
        yield Switch("1 thread", "threads", diff=("+ torch.set_num_threads(1)",), threads=1)


def _layouts(
    patient: Patient, device: str, record: Compilation, tensors: Sequence[torch.Tensor]
) -> Iterator[Switch]:
    images = any(tensor.dim() == 4 for tensor in tensors)
    if not images or not any(word in node.op for node in _fx_nodes(record) for word in _CONVOLUTIONS):
        return
    diff = patient.with_each(".to(memory_format=torch.channels_last)", images=True)
    yield Switch("channels last", "layout", diff=diff, channels_last=True)
    if device == "cpu":  # on a GPU it is ours to choose already
        options = (("channels_last", "always"),)
        name, option = "channels last inside", "-o channels_last=always"
        yield Switch(name, "layout", option, options=options, only="nbcompile")


def _optimizers(patient: Patient) -> Iterator[Switch]:
    if patient.optimizer is not None:
        yield Switch("compiled optimizer", "optimizer", "--optimizer", optimizer=True)


def _batches(patient: Patient) -> tuple[list[Switch], list[NotTried]]:
    size = batch_of(patient)
    if not size:
        return [], [NotTried("a larger batch", "which extent is the batch cannot be told")]
    name = f"batch {_TIMES * size} instead of {size}"
    return [Switch(name, "batch", diff=(name,), effect="work", batch=_TIMES)], []


def _fusions(record: Compilation) -> Iterator[Switch]:
    """Decisions of ours to overrule, those with the most bytes at stake."""
    if record.backend != "nbcompile":
        return
    graphs = (*record.of_stage("loops"), *record.of_stage("fused"))
    names = {node.id: node.name for graph in graphs for node in graph.nodes}
    for option, wanted in (("force_fuse", False), ("no_fuse", True)):
        pairs: dict[tuple[str, str], int] = {}
        for decision in record.decisions:
            pair = (names.get(decision.producer, ""), names.get(decision.consumer, ""))
            if decision.accepted is wanted and (wanted or decision.forceable) and all(pair):
                pairs[pair] = max(pairs.get(pair, 0), decision.bytes_saved)
        for pair in sorted(pairs, key=lambda pair: -pairs[pair])[:_PAIRS]:
            text = ":".join(pair)
            flag = f"--no-fuse {text}" if wanted else f"-o force_fuse={text}"
            name = f"{text} {'apart' if wanted else 'fused'}"
            yield Switch(name, "fusion", flag, options=((option, text),), only="nbcompile")


def _dynamic(present: CompileSettings) -> Iterator[Switch]:
    if present.dynamic is True:
        yield Switch("sizes are constants", "dynamic", "--no-dynamic", dynamic=False)
    if present.dynamic is None:
        yield Switch("sizes are symbols", "dynamic", "--dynamic", dynamic=True)
