"""Judge one program: eager, compiled, and where they differ aot_eager, which tells whose difference it is."""

from __future__ import annotations

import functools
import gc
import importlib
import itertools
import os
import re
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._functorch import config as functorch_config

from nbcompile.errors import LoweringError
from tests.fuzz.compare import Difference, differences, largest, seen_strides
from tests.fuzz.drawn import Drawn
from tests.fuzz.execute import Outcome, Runner, widened
from tests.fuzz.program import Program

RANDOM = re.compile(r"dropout|rand(?!int\(|perm\()|bernoulli|normal\(|rrelu\(")  # but what draws integers
REFUSALS = (LoweringError, IndexError)
"""What our compiler gives a graph up with that it does not take; all else is code that no compiler takes, or
that fails when it runs."""
UNPROVEN = "may leave its memory"  # as far as we can prove: what is asked for by ``verify`` alone
OVERWRITTEN = "modified by an inplace operation"
UNTRACED = ("AOTAutograd could not trace it", "AOTAutograd was not asked")
OURS = re.compile(r"(?:our compiler could not compile it|our code failed when run): (.{0,50})")
Backend = Callable[..., Any] | str


@dataclass
class Verdict:
    """What came of a program. ``failures`` are ours, ``torch`` those that aot_eager has as well. ``graphs``
    were captured, ``eager`` of these did not run our code, for these reasons."""

    failures: list[Difference] = field(default_factory=list)
    torch: list[Difference] = field(default_factory=list)
    graphs: int = 0
    eager: list[str] = field(default_factory=list)
    refused: str = ""  # eager's own exception, if it raises one
    seconds: float = 0.0

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(sorted({item.kind for item in self.failures}))


class EagerDiesError(Exception):
    """Eager's own kernels fail on the GPU, which is of no use to this process any more."""


@dataclass(frozen=True)
class Target:
    """Where programs run: ``cpu``, ``interpret`` (Triton's interpreter) or ``cuda``. ``options`` for
    nbcompile; ``backend`` is another compiler to test in its place: one that torch knows by this name, or
    ``package.module:function``. ``fallbacks``: a graph that our compiler gives up on is a failure too."""

    name: str = "cpu"
    options: tuple[tuple[str, Any], ...] = ()
    backend: str = ""
    fallbacks: bool = False

    @property
    def device(self) -> str:
        return "cuda" if self.name == "cuda" else "cpu"

    def compiler(self) -> tuple[Backend, Any]:
        """A backend for torch.compile, and its recorder (None if it has none)."""
        if self.backend:
            module, _, name = self.backend.rpartition(":")
            return getattr(importlib.import_module(module), name) if module else self.backend, None
        from nbcompile.backends.nbcompile import nbcompile_backend
        from nbcompile.options import Options
        from nbcompile.record.recorder import Recorder

        options = {"verify": True, "cache": False, "random": "eager", **dict(self.options)}
        if self.name == "interpret":
            options["interpret"] = True
        recorder = Recorder(Options.from_mapping(options))
        return functools.partial(nbcompile_backend, options={**options, "recorder": recorder}), recorder


def check(program: Program, target: Target) -> Verdict:
    """Run the program every way and compare, call by call."""
    start = time.perf_counter()
    verdict = Verdict()
    runner = Runner(program, target.device)
    try:
        expected = [runner.run(call) for call in range(len(program.sizes))]
    except torch.AcceleratorError as error:
        raise EagerDiesError(str(error)[:120]) from error
    if expected[0].error is not None:
        verdict.refused = f"{type(expected[0].error).__name__}: {expected[0].error}"[:200]
    backend, recorder = target.compiler()
    got = compiled_outcomes(program, runner, backend)
    references = References(program, runner)
    found = compare_calls(expected, got, references)
    if recorder is not None:
        verdict.graphs = recorder.graph_count
        verdict.eager = list(recorder.ran_eagerly.values())
        for graph, reason in recorder.ran_eagerly.items():
            error = recorder.gave_up.get(graph, Exception)
            if (told := OURS.search(reason)) and (target.fallbacks or not issubclass(error, REFUSALS)):
                kind = f"broken code, {told[1] if target.fallbacks else error.__name__}"
                verdict.failures.append(Difference(kind, "graph", reason[:300]))
        decisions = recorder.compilation().decisions
        refused = [each for each in decisions if each.code == "taken-apart" and UNPROVEN not in each.reason]
        if refused:
            verdict.failures.append(Difference("broken code, a kernel", "graph", refused[0].reason[:300]))
    if found:
        without_us = 0 < verdict.graphs <= len(verdict.eager)
        untraced = any(reason.startswith(UNTRACED) for reason in verdict.eager)  # they leave modes on
        apart = {item.identity for item in found if without_us or (untraced and item.kind == "inference")}
        names = recorder.ran_eagerly if recorder else ()
        left = {int(name[1:].removesuffix(".fw")) for name in names if re.fullmatch(r"g\d+(\.fw)?", name)}
        if program.meets:  # there AOTAutograd's numbers are wrong, and ours are not to be
            raised = raised_by_torch(program, runner, expected, references)
            plain = replace(program, meets=())
            also = raised
            if target.device == "cpu" or not raises_on_the_cpu(plain):
                runner = Runner(plain, target.device)
                expected = [runner.run(call) for call in range(len(plain.sizes))]
                also |= torchs_own(found, plain, runner, expected, References(plain, runner), apart, left)
        else:
            also = torchs_own(found, program, runner, expected, references, apart, left)
        if target.device == "cuda" and not references.random:
            also |= as_on_the_cpu(found, program, got)
        verdict.torch = [item for item in found if item.identity in also]
        verdict.failures += [item for item in found if item.identity not in also]
    if target.device == "cuda":
        torch.cuda.synchronize()  # an error that nobody has met yet is not the next program's
    verdict.seconds = time.perf_counter() - start
    return verdict


def torchs_own(
    found: Sequence[Difference], program: Program, runner: Runner, expected: Sequence[Outcome],
    references: References, without_us: Collection[tuple[str, str]] = (), left: Collection[int] = (),
) -> set[tuple[str, str]]:  # fmt: skip
    """Which differences torch has without us: through Dynamo alone (a device region is lost at a graph break
    within it), through AOTAutograd, through its own decompositions and partitioner, or in the strides that
    fake tensors say a result has (or Inductor's has), or what ``as_strided`` reads.
    ``without_us``: differences that our code has no part in: where torch fails altogether, they are its own.
    ``left``: which graphs ran eagerly in ours; beside one that torch cannot compile, another has its faults.
    """
    contestants: list[Backend] = [
        "eager",
        aot_eager(),
        aot_or_eager,
        aot_rewritten,
        aot_of_copies,
        aot_from_inputs,
        aot_of_dropouts,
    ]
    if left:
        contestants += [aot_but_of(left, aot_eager()), aot_but_of(left, aot_rewritten)]
    also: set[tuple[str, str]] = set()
    for backend in contestants:
        # with donated buffers a second backward of theirs raises, and shows nothing
        with torch._C._PreserveDispatchKeyGuard(), functorch_config.patch(donated_buffer=False):
            theirs = compiled_outcomes(program, runner, backend)
            differs = compare_calls(expected, theirs, references)
            del theirs
            if program.inside:  # the modes that they leave to the collector bring back keys (lost/modes.py)
                gc.collect()
        if backend is aot_from_inputs:  # its numbers may be wrong where ours must not be
            differs = [item for item in differs if item.kind.startswith("raises")]
        also |= {item.identity for item in differs}
        # theirs ran outside of the mode as well, all of it or a part
        if any("inference tensor" in item.note or item.kind == "inference" for item in differs):
            also |= {item.identity for item in found if item.kind == "inference"}
        if without_us and any(item.kind.startswith("raises") for item in differs):
            also |= set(without_us)
    if any(runner.is_laid_out_otherwise(call) for call in range(len(program.sizes))):
        also |= {item.identity for item in found if "values" in item.kind or item.kind == "generator"}
    told = [
        item
        for item in found
        if item.kind in ("shape", "strides", "alias-made") and item.identity not in also
    ]
    if told:
        calls = [
            (runner.fake_results(call, symbolic), expected[call].results)
            for call in range(len(program.sizes))
            for symbolic in ((False,) if program.dynamic is False else (False, True))
        ]
        for item in told:
            if any(_as_told(item, fakes, real) for fakes, real in calls):
                also |= {item.identity, ("values", item.place)}
    # Inductor's graphs save for backward what ours do, by AOTAutograd's smallest cut, and aot_eager's do not
    left = {item.identity: item.note for item in found if item.kind == "strides" or OVERWRITTEN in item.note}
    if any(identity not in also for identity in left):
        theirs = compiled_outcomes(program, runner, "inductor")
        same = (item for item in compare_calls(expected, theirs, references) if item.identity in left)
        alike = (item for item in same if item.note == left[item.identity] or OVERWRITTEN in item.note)
        also |= {item.identity for item in alike}
    return also


def raised_by_torch(
    program: Program, runner: Runner, expected: Sequence[Outcome], references: References
) -> set[tuple[str, str]]:
    """What Dynamo raises without us; and what backward raises in ``aot_eager`` too, as something that a graph
    saved for it was overwritten since. Eager may save none of that, or never come to what needs it; a
    compiled graph has one node for all."""
    dynamos = compare_calls(expected, compiled_outcomes(program, runner, "eager"), references)
    with functorch_config.patch(donated_buffer=False):
        saved = compare_calls(expected, compiled_outcomes(program, runner, aot_eager()), references)
    overwritten = [item for item in saved if OVERWRITTEN in item.note]
    return {item.identity for item in (*dynamos, *overwritten) if item.kind.startswith("raises")}


def _as_told(item: Difference, fakes: Sequence[Any], real: Sequence[Any]) -> bool:
    """Whether fake tensors already have a shape or strides that real ones do not (``pixel_unshuffle`` of no
    elements), or share memory (a ``reshape`` of such strides is a view of one, and a copy of the other)."""
    places = [int(place.removeprefix("result ")) for place in item.place.split(" and ") if "result" in place]
    shown = [fakes[place] for place in places]
    if not all(isinstance(fake, torch.Tensor) for fake in shown):
        return False
    if item.kind == "shape":
        return shown[0].shape != real[places[0]].shape
    if item.kind == "strides":
        return seen_strides(shown[0]) != seen_strides(real[places[0]])
    return len(shown) == 2 and torch._C._is_alias_of(*shown)


def as_on_the_cpu(
    found: Sequence[Difference], program: Program, got: Sequence[Outcome]
) -> set[tuple[str, str]]:
    """Which numbers that differ from eager's on the GPU are eager's on the CPU: the kernel that is wrong is
    torch's own (the gradient of ``avg_pool2d`` in channels-last memory is)."""
    runner = Runner(program, "cpu")
    expected = [runner.run(call) for call in range(len(program.sizes))]
    left = {item.identity for item in compare_calls(expected, got, References(program, runner))}
    numbers = {item.identity for item in found if "values" in item.kind}
    return numbers - left


def raises_on_the_cpu(program: Program) -> bool:
    """Whether it refuses its inputs, as an index out of bounds: a GPU's process would die of that."""
    runner = Runner(program, "cpu")
    return any(runner.run(call).error is not None for call in range(len(program.sizes)))


def agrees(program: Program, target: str = "cpu") -> None:
    """Assert that a program does, compiled, what it does in eager."""
    failures = check(program, Target(target)).failures
    assert not failures, "\n".join([*map(str, failures), program.inputs_source(), program.source()])


def aot_or_eager(graph: Any, inputs: Any) -> Any:
    """AOTAutograd where it can trace a graph, eager elsewhere, as we do: what it makes of later calls may be
    wrong too."""
    try:
        return aot_eager()(graph, inputs)  # type: ignore[operator]
    except Exception:
        return graph.forward


def aot_but_of(left: Collection[int], compiler: Backend) -> Backend:
    """``compiler``, but that the graphs of these numbers, in the order of their capture, run in eager."""
    numbers = itertools.count()

    def backend(graph: Any, inputs: Any) -> Any:
        return graph.forward if next(numbers) in left else compiler(graph, inputs)  # type: ignore[operator]

    return backend


def aot_eager() -> Backend:
    from torch._dynamo.backends.debugging import aot_eager as backend

    return backend  # type: ignore[no-any-return]


def aot_of_dropouts(graph: Any, inputs: Any) -> Any:
    """``aot_eager`` of dropouts that are off as we have them, as their inputs."""
    from nbcompile.compiler.capture.lost import dropout

    dropout.off_is_its_input(graph)
    repeated = dropout.without_repeated(graph)
    call = aot_eager()(graph, inputs)  # type: ignore[operator]
    return call if repeated is None else dropout.with_repeated(call, repeated)


def aot_rewritten(graph: Any, inputs: Any) -> Any:
    """``aot_eager_decomp_partition``, but that its rewrites draw the random numbers that eager draws."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.compilers import nop

    from nbcompile.compiler.capture.decompositions import core_table, drawing_as_eager

    compiler = aot_autograd(
        fw_compiler=nop,
        bw_compiler=nop,
        decompositions=drawing_as_eager(core_table()),
        partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"),
    )
    return compiler(graph, inputs)


def aot_from_inputs(graph: Any, inputs: Any) -> Any:
    """``aot_rewritten`` that saves inputs and nothing else it can help: after a graph break a program may
    overwrite them, and autograd then refuses what eager, which saved something else, finds as it was."""
    with functorch_config.patch(activation_memory_budget=0.0):
        return aot_rewritten(graph, inputs)


def aot_of_copies(graph: Any, inputs: Any) -> Any:
    """``aot_eager`` that saves copies of inputs: where forward overwrites one, autograd refuses what the
    others saved of it."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.compilers import nop
    from torch.utils.checkpoint import CheckpointPolicy

    def partition(joint: Any, given: Any, **keywords: Any) -> Any:
        places = joint.graph.find_nodes(op="placeholder")
        for node in places:
            if "tangents" in node.name or not isinstance(node.meta.get("val"), torch.Tensor):
                continue
            with joint.graph.inserting_after(places[-1]):
                copy = joint.graph.call_function(torch.ops.aten.clone.default, (node,))
            copy.meta = {**node.meta, "recompute": CheckpointPolicy.MUST_SAVE}
            node.replace_all_uses_with(copy, lambda user, copy=copy: user is not copy and user.op != "output")
        joint.recompile()
        return min_cut_rematerialization_partition(joint, given, **keywords)

    return aot_autograd(fw_compiler=nop, bw_compiler=nop, partition_fn=partition)(graph, inputs)


def compiled_outcomes(program: Program, runner: Runner, backend: Backend) -> list[Outcome]:
    """Each call of the program, compiled once by ``backend``."""
    torch._dynamo.reset()
    kept = {"capture_scalar_outputs": program.captures, "capture_dynamic_output_shape_ops": program.captures}
    with warnings.catch_warnings(), torch._dynamo.config.patch(kept):
        warnings.simplefilter("ignore")
        compiled = torch.compile(runner.function, backend=backend, dynamic=program.dynamic)
        found = [runner.run(call, compiled) for call in range(len(program.sizes))]
    torch._dynamo.reset()
    return found


def without_us(program: Program, target: Target) -> None:
    """Run a program as torch alone compiles it, and as its results are judged by."""
    runner = Runner(program, target.device)
    compiled_outcomes(program, runner, aot_eager())
    references = References(program, runner)
    for call in range(len(program.sizes)):
        references.noisy(call, more=True)
        references.wide(call)


class References:
    """The runs that differences are judged by, made when the first is needed."""

    def __init__(self, program: Program, runner: Runner) -> None:
        self.program = program
        self.runner = runner
        self.random = any(RANDOM.search(step.code) for step in program.steps)
        said = program.source() + program.inputs_source() + program.autocast
        halves = [getattr(torch, name) for name in ("bfloat16", "float16") if name in said]
        self.coarsest = max((torch.finfo(dtype).eps for dtype in halves), default=0.0)
        self._noisy: dict[tuple[int, bool], Sequence[Outcome]] = {}
        self._wide: dict[int, Outcome | None] = {}

    def noisy(self, call: int, more: bool) -> Sequence[Outcome]:
        """A few runs with errors of one unit, or many with larger ones, half of them within the steps too."""
        if (call, more) not in self._noisy:
            sizes = [1.0] * 6 if not more else [1.0] * 12 + [4.0] * 12
            within = [more and seed % 4 > 1 for seed in range(len(sizes))]
            try:
                self._noisy[call, more] = [
                    self.runner.run_noisily(call, seed, size, inside)
                    for seed, (size, inside) in enumerate(zip(sizes, within))
                ]
            except torch.AcceleratorError as error:  # a number off by little is an index out of range
                raise EagerDiesError(str(error)[:120]) from error
        return self._noisy[call, more]

    def wide(self, call: int) -> Outcome | None:
        """In float64, of the same random numbers; None where that cannot be, or where eager refuses it."""
        if call not in self._wide:
            outcome, drawn = None, Drawn()
            try:
                if self.random:
                    self.runner.run(call, around=drawn)
                wide = Runner(widened(self.program), self.runner.device)
                outcome = wide.run(call, around=drawn.again() if self.random else None)
            except torch.AcceleratorError as error:
                raise EagerDiesError(str(error)[:120]) from error
            except Exception:  # a program of other types need not be one that eager takes
                outcome = None
            self._wide[call] = outcome
        return self._wide[call]


def compare_calls(
    expected: Sequence[Outcome], got: Sequence[Outcome], references: References
) -> list[Difference]:
    """Differences of the first call that has any."""
    for call, (one, two) in enumerate(zip(expected, got)):
        for more in (False, True):
            found = differences(
                one,
                two,
                functools.partial(references.noisy, call, more),
                functools.partial(references.wide, call),
                largest(one) if more else 0.0,
                references.coarsest,
            )
            if not any("values" in item.kind or item.kind == "generator" for item in found):
                break
        if found:
            return found
    return []


def prepare(target: Target) -> None:
    """Settings of a process that checks programs."""
    import logging

    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    torch._dynamo.config.recompile_limit = 16
    if target.name == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.deterministic = True
    else:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
