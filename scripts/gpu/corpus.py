"""The corpus: fused regions of real training and inference graphs, each held to the memory's limit.

    python scripts/gpu/corpus.py collect [--only NETS]                 anywhere, without memory or a GPU
    python scripts/gpu/corpus.py check [--every N]                     compile each for cuda:90, anywhere
    python scripts/gpu/corpus.py run [--only REGIONS] [--contestants NAMES] [--budget SECONDS]

``collect`` writes ``corpus/regions.jsonl``, and with ``--second`` ``corpus/second.jsonl``: regions that the
first does not have, of other models. Of that, what is tuned is tuned on half 0 (``--half``), and half 1 is
left for the measurement. Models of torchvision and transformers take part where these
packages are. ``run`` compiles each region for every contestant, with caches empty, and times it: the limit
is its bytes at the copy's bandwidth and one launch.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import regions
import runner
import torch
from contestants import OURS, PEER, compile_with, empty_caches, first_line, warm_up
from gpu_timing import in_turn, input_sets, interleaved, relative_error, summary, synchronize, tensors
from items import copies, in_float64
from regions import Region
from runner import Run, say

CONTESTANTS = (OURS, PEER)
MOST_SETS = 64
MOST_SECOND = 720  # regions of the second corpus, chosen by their hashes
TINY_BYTES = 6 << 20  # with --tiny, regions of at most so much


# -- collect -----------------------------------------------------------------------------------


Source = tuple[str, Callable[[], Any]]


def _whole(model: Any, *, train: bool = True) -> Any:
    from region_capture import graphs_of

    with torch.device("meta"):
        module, inputs = model.build(False)
        return graphs_of(model.name, module.to(torch.bfloat16), inputs("meta"), train=train)


def _first() -> list[Source]:
    from corpus_images import NETS
    from region_capture import graphs_of_net
    from zoo import MODELS

    nets: list[Source] = [
        (f"{net.name}, {mode}", lambda net=net, mode=mode: graphs_of_net(net, mode))
        for net in NETS
        for mode in net.modes
    ]
    return nets + [
        (f"{model.name}, bf16", lambda model=model: _whole(model)) for model in MODELS if not model.small
    ]


def _second() -> list[Source]:
    from second import SECOND

    return [
        (f"{model.name}, {word}", lambda model=model, train=train: _whole(model, train=train))
        for model in SECOND
        for word, train in (("training", True), ("eval", False))
    ]


def graphs(sources: Sequence[Source], only: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(name, AtenGraph) of every net and model that can be traced here."""
    for name, make in sources:
        if only and not any(text in name for text in only):
            continue
        try:
            for graph in make():
                yield name, graph
        except Exception as error:  # a package that is not here, or a model that needs real values
            say(f"{name}: not traced: {first_line(error)}")


def collect(run: Run) -> int:
    from region_extract import regions_of

    known: dict[str, Region] = {}
    second = run.arguments.second
    structures = {structure_of(region) for region in regions.load()} if second else set()
    for name, graph in graphs(_second() if second else _first(), run.arguments.only):
        before = len(known)
        for region in regions_of(graph, name):
            key = repr((region.inputs, region.code, region.returns))
            structure = structure_of(region)
            if key in known or structure in structures:
                continue
            if reason := problem(region):
                say(f"  {region.id}: left out: {reason}")
                continue
            known[key] = region
            structures.add(structure)
        say(f"{name}, {graph.stage}: {len(known) - before} regions")
    # In no order of nets or kinds: a run that is cut short has seen some of each.
    found = sorted(known.values(), key=lambda region: region.id[-8:])
    if second:
        say(f"{len(found)} regions, of which {MOST_SECOND} are kept at most")
        found = found[:MOST_SECOND]
    if run.arguments.only:
        say("--only: the corpus file is left as it is")
    else:
        regions.save(found, regions.SECOND if second else regions.CORPUS)
    say(f"{len(found)} regions")
    return 0


def structure_of(region: Region) -> str:
    """The program less sizes and the widths of types: of regions that differ in these alone, one is kept."""
    orders = [each and sorted(range(len(each)), key=each.__getitem__) for *_, each, _ in region.inputs]
    ranks = [len(shape) for _, _, shape, _, _ in region.inputs]
    code = re.sub(r"\d\d+", "#", re.sub(r"\b(bf16|f32)\b", "f", "\n".join(region.code)))
    return repr((code, ranks, orders, region.returns))


def problem(region: Region) -> str:
    """Why a region cannot be run by itself, found on fake tensors; empty if it can."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode():
            region.function("cpu")(*_fake(region))
    except Exception as error:  # whatever it is, the region is not for the corpus
        return first_line(error)
    return ""


def _fake(region: Region) -> list[torch.Tensor]:
    return [
        torch.empty_strided(shape, strides, dtype=regions.DTYPES[dtype])
        if strides is not None
        else torch.empty(shape, dtype=regions.DTYPES[dtype])
        for _, dtype, shape, strides, _ in region.inputs
    ]


# -- check ----------------------------------------------------------------------------------------


def check(run: Run, names: Sequence[str]) -> int:
    """Compile every region for ``cuda:90`` at its own size, without running it; the number that failed."""
    from region_capture import OPTIONS, graphs_of_region

    from nbcompile.compiler.compile_graph import compile_graph
    from nbcompile.record.recorder import Recorder

    failed = 0
    for name in run.items(names):
        region = regions.by_id()[name]
        recorder = Recorder(OPTIONS)
        begun = time.perf_counter()
        try:
            for graph in graphs_of_region(region):
                compile_graph(graph, OPTIONS, recorder)
        except Exception as error:  # each is reported, and counted
            failed += 1
            run.failed(name, OURS, first_line(error))
            continue
        record = recorder.compilation()
        moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in record.kernels)
        shapes = ", ".join(kernel.schedule for kernel in record.kernels)
        nodes = [node for graph in record.graphs for node in graph.nodes if node.kind == "fallback"]
        fallbacks = [node.name for node in nodes]
        say(
            f"{name}: {len(record.kernels)} kernels ({shapes}), {moved / region.bytes:.2f} times its bytes, "
            f"{time.perf_counter() - begun:.2f} s, fallbacks: {', '.join(fallbacks) or 'none'}"
        )
        run.write("check", item=name, kernels=shapes, bytes=moved, fewest=region.bytes, fallbacks=fallbacks)
    say(f"{failed} failed")
    return failed


# -- run ---------------------------------------------------------------------------------------


def program(item: str, device: str, tiny: bool) -> tuple[Any, Any]:
    """What cold.py asks for."""
    del tiny
    region = regions.by_id()[item]
    args = region.arguments(device)
    return region.function(device), lambda compiled: compiled(*args)


def measure(region: Region, run: Run, machine: dict[str, Any]) -> None:
    """Compile for everyone, check, then time everyone in turns; one record."""
    fn = region.function(run.device)
    positive, reference = reference_of(region, run.device)
    sets = input_sets(
        lambda seed: region.arguments(run.device, seed, positive=positive), run.device, most=MOST_SETS
    )
    calls: dict[str, Any] = {}
    errors: dict[str, float] = {}
    compiled: dict[str, float] = {}
    notes: dict[str, Any] = {}
    for name in run.arguments.contestants:
        if name != "eager":
            empty_caches()
        contestant = compile_with(name, fn)
        args = copies(sets[0])
        made = run.attempt(region.id, name, lambda c=contestant, a=args: first_result(c.fn, a, run.device))
        if made is None:
            continue
        if reason := contestant.why_eager():
            run.failed(region.id, name, reason)
            continue
        seconds, results = made
        if name != "eager":
            compiled[name] = seconds
        if reference is not None:
            errors[name] = relative_error(results, reference)
        notes[name] = contestant.facts()
        calls[name] = in_turn([_bound(contestant.fn, args) for args in sets])
    budget = 0.05 if run.arguments.quick else 0.15
    samples = interleaved(calls, run.device, budget=budget, kernels=True)
    times = {name: summary(values) for name, values in samples.items()}
    limit = region.bytes / machine["copy_bandwidth"] + machine["launch_floor"]
    run.write(
        "steady", item=region.id, what=region.what, times=times, bytes=region.bytes, limit=limit,
        errors=errors, compile=compiled, notes=notes,
    )  # fmt: skip
    said = [
        f"{name} {each['median'] / limit:.2f} ({each['median'] * 1e6:.0f} µs"
        + (f", compiled in {compiled[name]:.2f} s)" if name in compiled else ")")
        for name, each in times.items()
    ]
    say(f"{region.id} {region.what}: times the limit: {', '.join(said)}")


def _bound(fn: Any, args: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: fn(*args)


def first_result(fn: Any, args: tuple[Any, ...], device: str) -> tuple[float, Any]:
    synchronize(device)
    begun = time.perf_counter()
    with torch.no_grad():
        results = fn(*args)
    synchronize(device)
    return time.perf_counter() - begun, results


def reference_of(region: Region, device: str) -> tuple[bool, Any]:
    """Whether its inputs must be positive, and its results in float64; ``None`` where it draws random
    numbers, where ATen does not take float64, or where they are not finite with any of our inputs."""
    if re.search(r"dropout|bernoulli|rand", "\n".join(region.code)):
        return False, None
    wide = regions.Region(**{**vars(region), "code": tuple(_widened(line) for line in region.code)})
    for positive in (False, True):
        args = in_float64(region.arguments(device, positive=positive))
        try:
            with torch.no_grad():
                results = wide.function(device)(*args)
        except (RuntimeError, TypeError) as error:
            say(f"  {region.id}: no float64 reference: {first_line(error)}")
            return positive, None
        if all(bool(torch.isfinite(each).all()) for each in tensors(results) if each.is_floating_point()):
            return positive, results
    return True, None


def _widened(line: str) -> str:
    return re.sub(r"\b(bf16|f16|f32)\b", "f64", line)


def main(argv: Sequence[str] | None = None) -> int:
    def extra(parser: Any) -> None:
        parser.add_argument("command", choices=("collect", "check", "run"))
        parser.add_argument("--every", type=int, default=1, help="run only every so many-th region")
        parser.add_argument("--half", type=int, choices=(0, 1), help="every second region, from this one")
        parser.add_argument("--second", action="store_true", help="the second corpus")

    run = runner.start("corpus", __doc__ or "", argv, CONTESTANTS, extra=extra)
    if run.arguments.command == "collect":
        return collect(run)
    most = TINY_BYTES if run.arguments.tiny else math.inf
    of = regions.load(regions.SECOND if run.arguments.second else regions.CORPUS)
    names = [region.id for region in of if region.bytes <= most]
    if run.arguments.half is not None:
        names = names[run.arguments.half :: 2]
    names = names[:: run.arguments.every]
    if run.arguments.list:
        say("\n".join(names))
        return 0
    if run.arguments.command == "check":
        return int(check(run, names) > 0)
    machine = runner.describe_machine(run)
    warm_up([name for name in run.arguments.contestants if name != "eager"], run.device)
    with torch.no_grad():
        for name in run.items(names):
            run.attempt(name, "all", lambda name=name: measure(regions.by_id()[name], run, machine))
    return runner.finish(run)


if __name__ == "__main__":
    sys.exit(main())
