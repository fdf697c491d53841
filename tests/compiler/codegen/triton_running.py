"""Prints graphs as Triton kernels for a chip that is not here, interprets and compiles them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import importlib
import os
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from nbcompile import targets
from nbcompile.compiler import schedule as gpu_schedules
from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.compiler.codegen.triton import schedules as triton_schedules
from nbcompile.compiler.codegen.triton.expressions import HELPERS, IMPORTS
from nbcompile.compiler.codegen.triton.groups_to_triton import groups_to_triton
from nbcompile.compiler.fuse import loops_to_groups as loops_to_groups_file
from nbcompile.compiler.fuse.limits import limits_of
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.fuse.storage import with_storage
from nbcompile.compiler.kernel_ir import integer_ranges
from nbcompile.compiler.kernel_ir.bounds import verify_bounds
from nbcompile.compiler.loop_ir.fused import FusedProgram
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.loop_ir.versions import verify_versions
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.runtime import bind as source_to_module
from nbcompile.compiler.runtime import gpu_module
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu.build import assumptions
from nbcompile.compiler.runtime.gpu.compile import Built, compile_function
from nbcompile.compiler.runtime.interpreter import interpret as triton_interpret
from nbcompile.compiler.schedule.memory_order import in_one_order
from nbcompile.compiler.stages import AtenGraph, KernelSource, KernelText, Launch
from nbcompile.options import Options

CHIPS = ("cuda:80", "cuda:90", "hip:gfx942")
H100 = Options(cache=False, verify=True, target="cuda:90", random="eager")


def files_of(package: ModuleType) -> list[ModuleType]:
    """The modules of a package."""
    names = (item.name for item in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


@contextlib.contextmanager
def small_chip(multiprocessors: int = 2, **constants: int) -> Iterator[None]:
    """Give ``cuda:90`` few multiprocessors, and schedules and fusion lower thresholds, so that small tensors
    are cut up as large ones are elsewhere. ``constants`` are those of the files in
    :mod:`nbcompile.compiler.schedule` and, in small letters, of
    :class:`nbcompile.compiler.fuse.limits.Limits`."""
    fusion = {name: value for name, value in constants.items() if name.islower()}
    chip = replace(targets.CHIPS["cuda:90"], multiprocessors=multiprocessors)
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.dict(targets.CHIPS, {"cuda:90": chip}))
        limits = lambda target: replace(limits_of(target), **fusion)
        patches.enter_context(mock.patch.object(loops_to_groups_file, "limits_of", limits))
        files = (*files_of(gpu_schedules), *files_of(triton_schedules), integer_ranges)
        for name in constants.keys() - fusion.keys():
            having = [item for item in files if hasattr(item, name)]  # its own, or imported there
            (_,) = {getattr(item, name) for item in having}
            for module in having:
                patches.enter_context(mock.patch.object(module, name, constants[name]))
        yield


def generated(aten: AtenGraph, options: Options = H100) -> tuple[FusedProgram, KernelSource]:
    """The graph's groups and their Triton functions for ``options.target``."""
    fused = in_one_order(loops_to_groups(verify(aten_to_loops(aten, options)), options), options.chip)
    verify(fused.program)
    fused = verify_versions(with_storage(fused, limits_of(options.chip)))
    verify_bounds(fused, narrow=True)
    return fused, groups_to_triton(fused, options.chip)


def run_interpreted(
    source: KernelSource, aten: AtenGraph, inputs: Sequence[Any], candidate: int = 0
) -> list[Any]:
    """What the generated code makes of ``inputs``, each access checked; never the graph run eagerly. Each
    function runs with its config number ``candidate``, counted round."""
    chosen = {item.function: item.configs[candidate % len(item.configs)] for item in source.launches}
    constants = source_to_module.graph_constants(aten, source.constants)
    allocate = gpu_module.allocator(torch.device("cpu"))
    functions = lambda: triton_interpret.interpreted(source, chosen=chosen)
    return list(source_to_module.bind(source, functions, constants, False, allocate).call(list(inputs)))


def run_on_gpu(source: KernelSource, aten: AtenGraph, inputs: Sequence[Any]) -> list[Any]:
    """What the same code makes of ``inputs`` on the GPU of this machine: results on the CPU, and tensors of
    ``inputs`` that it overwrites are overwritten."""
    from nbcompile.compiler.runtime.gpu.launch import launchers

    device, chip = torch.device("cuda", 0), targets.of_device(0)
    calls = launchers(source, triton_build.build(source, chip), chip, device)
    functions = {name: functools.partial(_launch, call) for name, call in calls.items()}
    constants = source_to_module.graph_constants(aten, source.constants)
    constants = {name: item.to(device) for name, item in constants.items()}
    there = [_strided_copy(item, device) if isinstance(item, torch.Tensor) else item for item in inputs]
    allocate = gpu_module.allocator(device)
    module = source_to_module.bind(source, lambda: functions, constants, False, allocate)
    results = [item.cpu() if isinstance(item, torch.Tensor) else item for item in module.call(list(there))]
    for here, moved in zip(inputs, there, strict=True):
        if isinstance(here, torch.Tensor):
            here.untyped_storage().copy_(moved.untyped_storage())
    return results


def _launch(call: Callable[..., None], *args: Any) -> None:
    """A launch whose arguments may be on the CPU: a seed that was drawn there."""
    call(*(item.cuda() if isinstance(item, torch.Tensor) else item for item in args))


def _strided_copy(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor on another device, strides and offset included."""
    storage = tensor.untyped_storage()
    moved = torch.empty(storage.nbytes(), dtype=torch.uint8, device=device).untyped_storage()
    moved.copy_(storage)
    empty = torch.empty(0, dtype=tensor.dtype, device=device)
    return empty.set_(moved, tensor.storage_offset(), tensor.size(), tensor.stride())


def titles(source: KernelSource) -> list[str]:
    """The schedules of the kernels, the number of programs that share a row left out."""
    return [re.sub(r"by \d+ programs", "by several programs", kernel.schedule) for kernel in source.kernels]


def aten_of_fake(fn: Callable[..., Any], make: Callable[[], tuple[torch.Tensor, ...]]) -> AtenGraph:
    """The ATen graph of a function of tensors that are too large to exist: ``make`` runs with fake ones."""
    with FakeTensorMode():
        inputs = make()
        module = make_fx(fn, decompositions(H100), tracing_mode="fake")(*inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            node._rename(str(node.target).removesuffix("_1"))
    module.recompile()
    ids = {node.name: f"g0.fw.n{place}" for place, node in enumerate(module.graph.nodes)}
    return AtenGraph("g0.fw", "forward", module, ids)


# -- compiling -----------------------------------------------------------------------------------------


@functools.cache
def _workers(process: int) -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="tests-triton")


def compiled(
    source: KernelSource, chip: str, launches: Sequence[Launch] | None = None, *, assemble: bool = True
) -> dict[str, Built]:
    """Each launch of ``source``, printed for ``cuda:90``, with its first config for one chip, by function
    name. What other chips cannot do, waiting for the kernel before, is left out for them."""
    target = targets.parse(chip)
    if not target.launches_early:
        texts = (replace(item, text=item.text.replace("    gdc_wait()\n", "")) for item in source.kernels)
        source = replace(source, kernels=tuple(texts))
    futures = {
        launch.function: _workers(os.getpid()).submit(
            compile_function, source.source, launch, launch.configs[0], target, assumptions(launch), assemble
        )
        for launch in (source.launches if launches is None else launches)
    }
    return {name: future.result() for name, future in futures.items()}


def launches_of(source: KernelSource, kernel: KernelText) -> list[Launch]:
    return [launch for launch in source.launches if launch.kernel == kernel.id]


_KEPT = frozenset(HELPERS) | {"tl", "triton", *IMPORTS, "def", "for", "in", "if", "range", "while", "pass"}


def canonical(kernel: KernelText) -> str:
    """The kernel's text without comments and with its names replaced by their order: two kernels that differ
    only in how people call things are one."""
    names: dict[str, str] = {}

    def renamed(found: re.Match[str]) -> str:
        name = found[0]
        return name if name in _KEPT else names.setdefault(name, f"v{len(names)}")

    code = "\n".join(line.split("#")[0].rstrip() for line in kernel.text.splitlines())
    return re.sub(r"(?<![\w.])[A-Za-z_]\w*", renamed, code)


def described(launches: Sequence[Launch]) -> str:
    """Grid and first config of each launch, as comments."""
    lines = []
    for launch in launches:
        config = launch.configs[0]
        constants = ", ".join(f"{name}={value}" for name, value in config.constants.items())
        more = f", {config.registers} registers" if config.registers else ""
        lines.append(
            f"# {launch.function}[{', '.join(launch.grid)}]({constants}), {config.warps} warps{more}"
        )
    return "\n".join(lines)


Chips = Mapping[str, dict[str, Built]]
