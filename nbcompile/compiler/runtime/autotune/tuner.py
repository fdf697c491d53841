"""Autotuning: which config each Triton launch of a graph runs fastest with, found on the user's own data.

The first call of a graph runs at once with the configs that the heuristics chose, while every candidate
compiles in the background. The second call searches: before each launch its candidates are measured on the
arguments of that very launch, with copies of what it writes, within the seconds that the options allow; then
it is launched as ever, so that the call gives what it always gives. From the third call on the winners run,
with nothing of the search left in the way. Winners are kept on disk: a later process starts with them.
"""

from __future__ import annotations

import ast
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from nbcompile.compiler.runtime.autotune import store
from nbcompile.compiler.runtime.autotune.ahead import Ahead
from nbcompile.compiler.runtime.autotune.configs import config_text, misfit, neighbours, spills
from nbcompile.compiler.runtime.autotune.copies import agree, restore, with_copies, written
from nbcompile.compiler.runtime.autotune.measure import (
    Call,
    CandidateTiming,
    GpuStopwatch,
    TuningStopwatch,
    faster,
    measure,
    reason,
)
from nbcompile.compiler.runtime.autotune.store import Result, Tried
from nbcompile.compiler.runtime.cache import DiskCache
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu.build import Builds
from nbcompile.compiler.runtime.gpu.compile import Built
from nbcompile.compiler.runtime.gpu.grid import hints_of, sizes_of
from nbcompile.compiler.runtime.gpu.text import definitions
from nbcompile.compiler.stages import CompiledModule, Config, KernelSource, Launch
from nbcompile.errors import NbcompileError
from nbcompile.options import SEARCH_MODES, Options
from nbcompile.record.compilation import AutotuneChoice, Kernel, Launched
from nbcompile.record.recorder import Recorder
from nbcompile.targets import Target

Functions = Mapping[str, Callable[..., None]]
Make = Callable[[Callable[[], Functions]], CompiledModule]
"""A graph's module that calls the given launchers."""

CLIMBS = 3
"""Steps to neighbours of the best so far, for a launch that matters."""
MATTERS = 0.02
"""The part of the graph's bytes from which a launch is worth more than the candidates listed for it."""
LEAST_SECONDS = 0.02
"""What a launch is measured for even where the budget is gone by then."""
CHECKS = 3
"""Winners whose results are compared with the default's before the search gives up on them."""


@dataclass(frozen=True)
class Bench:
    """What a search needs of the machine. ``begin`` compiles a launch with a config in the background,
    ``launcher`` loads what it gave (LaunchError where the device cannot), ``resident`` tells how many of
    its programs fit on the chip at once, ``capturing`` whether launches are being recorded, not run."""

    begin: Callable[[Launch, Config], Future[Built]]
    launcher: Callable[[Launch, Built], Callable[..., None]]
    resident: Callable[[Built], int]
    watch: TuningStopwatch
    capturing: Callable[[], bool] = lambda: False


def gpu_bench(source: KernelSource, chip: Target, device: torch.device) -> Bench:
    """The bench of a GPU of this machine."""
    from nbcompile.compiler.runtime.gpu.launch import launchers, resident_programs

    def launcher(launch: Launch, built: Built) -> Callable[..., None]:
        alone = replace(source, launches=(launch,))
        return launchers(alone, {launch.function: built}, chip, device)[launch.function]

    return Bench(
        begin=lambda launch, config: triton_build.begin(source, launch, config, chip),
        launcher=launcher,
        resident=lambda built: resident_programs(built, chip, device),
        watch=GpuStopwatch(device, chip.l2_bytes),
        capturing=torch.cuda.is_current_stream_capturing,
    )


@dataclass
class _Search:
    """One launch to search for; ``followers`` are the same function under other names."""

    launch: Launch
    key: str
    title: str
    default: Config
    weight: float = 0.0
    followers: list[Launch] = field(default_factory=list)
    configs: dict[str, Config] = field(default_factory=dict)  # every candidate so far by its text
    built: dict[str, Built] = field(default_factory=dict)
    launchers: dict[str, Callable[..., None]] = field(default_factory=dict)
    timings: dict[str, CandidateTiming] = field(default_factory=dict)
    result: Result | None = None
    # while it goes on: the launch's arguments, which of them it writes, and the same with copies of those
    args: Sequence[Any] = ()
    places: Sequence[int] = ()
    copies: Sequence[Any] = ()


class Tuner:
    """The search of one graph. ``chosen`` maps functions to configs that an earlier search found better than
    their first: build these. ``settled``: there is nothing (more) to search, so calls no longer change;
    a CUDA graph is worth capturing from then on."""

    def __init__(self, source: KernelSource, chip: Target, options: Options, recorder: Recorder) -> None:
        self.source, self.chip, self.options, self.recorder = source, chip, options, recorder
        self.chosen: dict[str, Config] = {}
        self.settled = True
        self._searches: list[_Search] = []
        self._seconds: dict[str, float] = {}
        self._names = {kernel.id: kernel.name for kernel in source.kernels}
        self._lock = threading.Lock()
        self._open: dict[str, _Search] = {}
        self._ahead: Ahead | None = None
        if options.mode in SEARCH_MODES:
            self._plan()
            self.settled = not self._searches

    def module(
        self, make: Make, functions: Callable[[], Functions], device: torch.device, bench: Bench | None = None
    ) -> CompiledModule:
        """The module made of ``functions``, which searches in its second call and then changes to the
        winners. ``bench`` is by default that of ``device``."""
        once = functools.cache(functions)
        plain = make(once)
        if self.settled:
            return plain
        self._make, self._plain, self._functions = make, plain, once
        self._bench = bench or gpu_bench(self.source, self.chip, device)
        self._run: Callable[[list[Any]], Any] = self._first
        return CompiledModule(plain.graph, lambda args: self._run(args), plain.from_cache)

    def runs(self, built: Builds) -> None:
        """Tell what the launchers are made of (``together`` launches get a config that fits): the configs
        that the search has to beat."""
        for search in self._searches:
            search.default = built[search.launch.function].config
            search.configs.setdefault(config_text(search.default), search.default)

    # -- what there is to search for ------------------------------------------------------------------

    def _plan(self) -> None:
        """Searches for what the cache does not know, the same functions together, the heaviest first."""
        known = {kernel.id: kernel for kernel in self.recorder.parts(Kernel)}
        cache, budget = DiskCache.shared(), self.options.autotune_seconds
        searches: dict[str, _Search] = {}
        for launch in self.source.launches:
            name = store.search_key(self.source, launch, self.chip)
            found = store.find(cache, name, launch, budget) if self.options.cache else None
            if found is not None:
                self._take(launch, found, "from cache")
                if found.winner != launch.configs[0]:
                    self.chosen[launch.function] = found.winner
                continue
            if budget <= 0:
                continue
            if name in searches:
                searches[name].followers.append(launch)
            else:
                title = self._names.get(launch.kernel, launch.function)
                searches[name] = _Search(launch, name, title, launch.configs[0])
            kernel = known.get(launch.kernel)
            searches[name].weight += (kernel.bytes_read + kernel.bytes_written if kernel else 0) + 1.0
        self._searches = sorted(searches.values(), key=lambda search: -search.weight)
        whole = sum(search.weight for search in self._searches)
        for search in self._searches:
            search.weight /= whole
            search.configs = {config_text(config): config for config in search.launch.configs}
        self._record_seconds()

    # -- calls ----------------------------------------------------------------------------------------

    def _first(self, args: list[Any]) -> Any:
        result = self._plain.call(args)
        if self._run == self._first:
            jobs = [(item.launch, config) for item in self._searches for config in item.configs.values()]
            for item in self._searches:
                if item.weight >= MATTERS:
                    jobs += [(item.launch, config) for config in self._beside(item, item.default)]
            self._ahead = Ahead(self._bench.begin, jobs)
            self._run = self._second
        return result

    def _second(self, args: list[Any]) -> Any:
        if self._bench.capturing() or not self._lock.acquire(blocking=False):
            return self._plain.call(args)
        try:
            if self.settled:  # another thread has searched meanwhile
                return self._run(args)
            self._deadline = self._bench.watch.now() + self.options.autotune_seconds
            self._open = {search.launch.function: search for search in self._searches}
            if self._ahead is not None:
                self._ahead.hurry()
            searching = {
                name: functools.partial(self._searched, name) if name in self._open else function
                for name, function in self._functions().items()
            }
            try:
                return self._make(lambda: searching).call(args)
            finally:
                self._settle()
        finally:
            self._lock.release()

    def _searched(self, name: str, *args: Any) -> None:
        """A launch of the call that searches: the search, then the launch itself."""
        search = self._open.get(name)
        if search is not None and self._bench.watch.now() < self._deadline:
            place = len(self._searches) - len(self._open) + 1
            self.recorder.progress(f"autotuning {search.title}: {place} of {len(self._searches)}")
            begun, until = self._bench.watch.now(), self._share(search)
            del self._open[name]
            try:
                with torch.no_grad():
                    search.args, search.places = args, written(search.launch)
                    search.copies = with_copies(args, search.places)
                    self._search(search, begun, until)
            except Exception as error:
                self.recorder.add(f"kernel {search.title} was not autotuned: {reason(error)}")
            finally:
                search.args = search.copies = ()
        self._functions()[name](*args)

    def _share(self, search: _Search) -> float:
        """Until when a search may go on: its part of the time left, by the weights of those still open."""
        now = self._bench.watch.now()
        whole = sum(item.weight for item in self._open.values())
        return now + max(self._deadline - now, 0.0) * search.weight / whole

    # -- one search -----------------------------------------------------------------------------------

    def _search(self, search: _Search, begun: float, until: float) -> None:
        launch, watch = search.launch, self._bench.watch
        default = config_text(search.default)
        search.launchers[default] = self._functions()[launch.function]
        beside = self._beside(search, search.default) if search.weight >= MATTERS else []
        # compiling may take longer than measuring: half of all the time left
        self._get_ready(search, [*search.configs.values()], max(until, begun + (self._deadline - begun) / 2))
        self._get_ready(search, [item for item in beside if self._ahead_of(search, item).done()], until)
        winners = self._session(search, [*search.configs], default, until)
        best = winners[0] if winners else default
        for _ in range(CLIMBS if search.weight >= MATTERS else 0):
            fresh = self._beside(search, search.configs[best])
            if not fresh or watch.now() >= until:
                break
            self._get_ready(search, fresh, until)
            better = self._session(search, [config_text(config) for config in fresh], best, until)
            if not better:
                break
            best = better[0]
        # it beat what had beaten the default: now the default itself
        if best not in (*winners, default) and self._session(search, [best], default, until):
            winners = [best, *winners]
        winner = self._checked(search, winners, default)
        chosen = search.timings[winner].seconds
        for name, timing in search.timings.items():  # why not this one, a reader would ask
            if not timing.note and timing.seconds and chosen and name != winner and timing.seconds < chosen:
                search.timings[name] = replace(timing, note="not faster by more than the noise")
        late = watch.now() >= until or any(item.note.endswith("in time") for item in search.timings.values())
        tried = tuple(Tried(name, item.seconds, item.note) for name, item in search.timings.items())
        search.result = Result(search.configs[winner], tried, complete=not late)
        if self.options.cache:
            store.keep(DiskCache.shared(), search.key, search.result, self.options.autotune_seconds)

    def _session(self, search: _Search, names: Sequence[str], against: str, until: float) -> list[str]:
        """Measure these (those that can run) beside the one ``against``; which beat it, the fastest first."""
        calls: dict[str, Call] = {
            name: functools.partial(search.launchers[name], *search.copies)
            for name in dict.fromkeys((against, *names))
            if name in search.launchers
        }
        left = max(until - self._bench.watch.now(), LEAST_SECONDS)
        timings = measure(
            calls, left, watch=self._bench.watch, reference=against, prepare=self._reset(search)
        )
        for name, timing in timings.items():
            spilled = spills(search.built[name]) if name in search.built else ""
            search.timings[name] = replace(timing, note=_joined(spilled, timing.note))
        return faster(timings, against)

    def _beside(self, search: _Search, config: Config) -> list[Config]:
        """Neighbours of a config that have not been tried."""
        function = definitions(self.source.source).get(search.launch.function)
        # Triton pipelines the loads of a loop that multiplies matrices, no others
        products = function is not None and any(
            isinstance(node, ast.Attribute) and node.attr == "dot" for node in ast.walk(function)
        )
        found = {config_text(item): item for item in neighbours(config, search.launch, pipelined=products)}
        return [item for name, item in found.items() if name not in search.configs]

    def _get_ready(self, search: _Search, configs: Sequence[Config], until: float) -> None:
        """Wait for these to be compiled, and load them; what goes wrong is noted of each."""
        launch, watch = search.launch, self._bench.watch
        sizes = sizes_of(launch, search.args)
        futures = {config_text(config): self._ahead_of(search, config) for config in configs}
        search.configs |= {config_text(config): config for config in configs}
        for name, future in futures.items():
            try:
                built = search.built[name] = future.result(max(until - watch.now(), 0.0))
                why = misfit(launch, built, self.chip, sizes, self._bench.resident)
                if why:
                    search.timings[name] = CandidateTiming(None, note=_joined(why, spills(built)))
                elif name not in search.launchers:
                    search.launchers[name] = self._bench.launcher(launch, built)
            except FutureTimeout:
                search.timings[name] = CandidateTiming(None, note="not compiled in time")
            except Exception as error:
                search.timings[name] = CandidateTiming(None, note=reason(error))

    def _ahead_of(self, search: _Search, config: Config) -> Future[Built]:
        assert self._ahead is not None, "the first call starts it"
        return self._ahead.get(search.launch, config)

    def _reset(self, search: _Search) -> Call | None:
        """What puts back the counters by which programs of a ``together`` launch wait for each other."""
        arguments = search.launch.arguments
        ours = [place for place in search.places if arguments[place].ours] if search.launch.together else []
        if not ours:
            return None

        def reset() -> None:
            for place in ours:
                restore(search.copies[place], search.args[place])

        return reset

    def _checked(self, search: _Search, winners: Sequence[str], default: str) -> str:
        """The first of the winners that writes what the default writes; else the default."""
        launch, args = search.launch, search.args
        # What a kernel's launches leave each other may be cut up otherwise: what outlives them counts.
        alone = not launch.together and self._launches_of(launch.kernel) == 1
        compared = [place for place in search.places if alone or not launch.arguments[place].ours]
        if not winners or not compared:
            return winners[0] if winners else default

        def run(name: str) -> list[Any]:
            taken = with_copies(args, search.places)
            search.launchers[name](*taken)
            return [taken[place] for place in compared]

        expected = run(default)
        for name in winners[:CHECKS]:
            if all(map(agree, expected, run(name))):
                return name
            if not all(map(agree, expected, run(default))):
                return name  # no two runs of this kernel agree
            timing = search.timings[name]
            search.timings[name] = replace(timing, note=_joined(timing.note, "its results differ"))
        return default

    def _launches_of(self, kernel: str) -> int:
        return sum(item.kernel == kernel for item in self.source.launches)

    # -- afterwards -----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Change to the winners, and write down what was found."""
        replaced: dict[str, Callable[..., None]] = {}
        facts: dict[str, Launched] = {}

        def use(launch: Launch, built: Built, function: Callable[..., None]) -> None:
            replaced[launch.function] = function
            facts[launch.function] = triton_build.launched(launch, built, hints_of(launch))

        waiting: list[tuple[Launch, Future[Built]]] = []
        if self._open:
            left = ", ".join(search.title for search in self._open.values())
            spent = f"{self.options.autotune_seconds:g} s"
            self.recorder.add(f"The {spent} for autotuning were spent before these were reached: {left}.")
        for search in self._searches:
            if search.result is None:
                continue
            self._take(search.launch, search.result)
            name = config_text(search.result.winner)
            changed = search.result.winner != search.default
            if changed:
                use(search.launch, search.built[name], search.launchers[name])
            for follower in search.followers:
                self._take(follower, search.result, f"searched as {search.launch.function}", brief=True)
                if changed:
                    waiting.append((follower, self._bench.begin(follower, search.result.winner)))
        for launch, future in waiting:
            try:
                built = future.result()
                use(launch, built, self._bench.launcher(launch, built))
            except NbcompileError as error:
                self.recorder.add(f"{launch.function} keeps its first config: {reason(error)}")
        self._record_launches(facts)
        self._record_seconds()
        functions = {**self._functions(), **replaced}
        self._run = self._make(lambda: functions).call
        self.settled = True
        close = getattr(self._bench.watch, "close", None)
        if close is not None:
            close()
        self._searches, self._open, self._ahead = [], {}, None

    def _take(self, launch: Launch, result: Result, note: str = "", *, brief: bool = False) -> None:
        """Put a result in the record: all that was tried, or (``brief``) only what was chosen."""
        winner = config_text(result.winner)
        several = self._launches_of(launch.kernel) > 1
        for item in result.tried:
            chosen = item.candidate == winner
            if chosen and item.seconds is not None:
                self._seconds[launch.function] = item.seconds
            if chosen or not brief:
                text = f"{launch.function}: {item.candidate}" if several else item.candidate
                self.recorder.add(
                    AutotuneChoice(launch.kernel, text, item.seconds, chosen, _joined(item.note, note))
                )

    def _record_seconds(self) -> None:
        """The measured time of each kernel all of whose launches have one."""
        parts: dict[str, list[float | None]] = {}
        for launch in self.source.launches:
            parts.setdefault(launch.kernel, []).append(self._seconds.get(launch.function))

        def change(kernel: Kernel) -> Kernel:
            times = [item for item in parts.get(kernel.id, ()) if item is not None]
            whole = times and len(times) == len(parts[kernel.id])
            return replace(kernel, seconds=sum(times)) if whole else kernel

        self.recorder.change_kernels(change)

    def _record_launches(self, facts: Mapping[str, Launched]) -> None:
        def change(kernel: Kernel) -> Kernel:
            launches = tuple(facts.get(item.function, item) for item in kernel.launches)
            return kernel if launches == kernel.launches else replace(kernel, launches=launches)

        self.recorder.change_kernels(change)


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))
