"""Functions that jax jitted, timed as any program is: compiled, and one primitive at a time.

What is timed is the compiled program alone, and the same jaxpr under ``jax.disable_jit()``: no line of the
user's Python runs again, so nothing that a function does besides computing happens twice. What prints, calls
Python or has given its arguments' memory away is not called again at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nbcompile.backends.xla.jaxpr import on_mesh, primitives_in
from nbcompile.backends.xla.jaxpr_values import in_float64, one_by_one
from nbcompile.backends.xla.jitted import JittedProgram
from nbcompile.bench.measure.accuracy import compare_values
from nbcompile.bench.measure.timing import interleaved, quiet, timed
from nbcompile.errors import in_one_line
from nbcompile.record.compilation import Accuracy, Measurement

_MOST_PRIMITIVES = 2_000
"""Beyond which a function is not run one primitive at a time: each is compiled by itself the first time."""
_MOST_BYTES = 1 << 30
"""Of arguments and results, beyond which there is no float64 run."""


@dataclass(frozen=True)
class JittedTimes:
    """What was measured of jitted functions. ``notes`` say of which there is nothing, and why."""

    measurements: tuple[Measurement, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    notes: tuple[str, ...] = ()


def measure_jitted(
    programs: Sequence[JittedProgram], budget: float, *, what: str, cold: bool,
    progress: Callable[[str], None],
) -> JittedTimes:  # fmt: skip
    """Compare the results of each program with those of its jaxpr one primitive at a time, and time both in
    turns for ``budget`` seconds in all. All of them, one after the other, are timed as ``what``; where there
    are several, each is timed by its own name too."""
    notes, taken = [], []
    untimed: dict[str, list[str]] = {}
    for program in programs:
        why = program.call.why_not_again
        if why:
            notes.append(f"Not timed: {program.call.where}, for {why}.")
        else:
            taken.append(program)
    accuracy: list[Accuracy] = []
    measurements: list[Measurement] = []
    with quiet(silent=True):
        for program in taken:
            progress(f"comparing {program.call.name}")
            if why := _too_much(program):
                notes.append(f"{program.call.where} is not compared with anything: {why}.")
                continue
            try:
                accuracy += _checked(program, several=len(taken) > 1)
            except Exception as error:  # a collective that has no meaning outside of its mesh, say
                notes.append(
                    f"{program.call.where} is not compared with anything: it cannot run one primitive at a "
                    f"time ({in_one_line(error)})."
                )
        groups = {what: taken} if taken else {}
        if len(taken) > 1:
            if any(on_mesh(program.call.closed) for program in taken):
                groups = {}  # nothing to hold the time of all against
            groups |= {program.name: [program] for program in taken}
        for name, group in groups.items():
            progress(f"timing {name}")
            made, why = _timed_group(name, group, budget / len(groups), cold)
            measurements += made
            if why:
                untimed.setdefault(why, []).append(name)
    notes += [f"Not timed without XLA ({', '.join(names)}): {why}." for why, names in untimed.items()]
    return JittedTimes(tuple(measurements), tuple(accuracy), tuple(notes))


def _timed_group(
    what: str, group: Sequence[JittedProgram], budget: float, cold: bool
) -> tuple[list[Measurement], str]:
    """The times of programs one after the other, and why there are none without the compiler."""

    def compiled() -> Any:
        return [_ready(_call(program)) for program in group]

    def eager() -> Any:
        return [_ready(_eager(each)) for each in group]

    contestants: dict[str, Callable[[], object]] = {"xla": compiled}
    first_eager, reason = 0.0, ""
    if any(on_mesh(program.call.closed) for program in group):
        reason = "outside of jit, what a mesh of devices runs is compiled anew at each call"
    elif too_much := next(filter(None, map(_too_much, group)), ""):
        reason = too_much
    else:
        try:
            first_eager, _ = timed(eager)
            contestants = {"eager": eager, "xla": compiled}
        except Exception as error:
            reason = f"it cannot run one primitive at a time: {in_one_line(error)}"
    first, _ = timed(compiled)
    samples = interleaved(contestants, budget=budget)
    xla = Measurement(
        what, "xla",
        cold=sum(program.seconds for program in group) + first if cold else None,
        first=first, steady=_short(samples["xla"]), graphs=len(group),
    )  # fmt: skip
    if reason:
        return [xla], reason
    slow = Measurement(what, "eager", first=first_eager, steady=_short(samples["eager"]), ran_compiled=False)
    return [slow, xla], ""


def _too_much(program: JittedProgram) -> str:
    """Why it is not run one primitive at a time; empty if it may be."""
    count = primitives_in(program.call.closed)
    return f"{count:,} primitives are too many to run one at a time" if count > _MOST_PRIMITIVES else ""


def _ready(values: Any) -> Any:
    import jax

    return jax.block_until_ready(values)  # type: ignore[no-untyped-call]


def _short(samples: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{seconds:.4g}") for seconds in samples)


def _call(program: JittedProgram) -> Any:
    """The compiled program once more, with the arguments of its first call."""
    import jax

    call = program.call
    args, kwargs = jax.tree.unflatten(call.traced.in_tree, call.arrays)
    return call.compiled(*args, **kwargs)


def _eager(program: JittedProgram) -> list[Any]:
    with program.call.settings():
        return one_by_one(program.call.closed, program.call.arrays)


# -- values --------------------------------------------------------------------------------------------


def _checked(program: JittedProgram, *, several: bool) -> list[Accuracy]:
    """One comparison a result, against float64 where that can be run."""
    import jax

    call = program.call
    results = jax.tree.unflatten(call.traced.out_tree, call.closed.out_avals)
    places = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(results)]
    before = f"{program.name}." if several else ""
    names = [f"{before}output{place}" for place in places]
    got = dict(zip(names, map(_tensor, jax.tree.leaves(_call(program))), strict=True))
    plain = dict(zip(names, map(_tensor, _eager(program)), strict=True))
    wide, why = _reference(program, names)
    return [compare_values("xla", name, got, plain, wide, why) for name in names]


def _reference(program: JittedProgram, names: Sequence[str]) -> tuple[dict[str, Any] | None, str]:
    call = program.call
    size = sum(getattr(each, "nbytes", 0) for each in call.arrays)
    if size > _MOST_BYTES:
        return None, f"its arguments take {size >> 30} GiB, too many to double"
    if any(str(getattr(each, "dtype", "")) == "float64" for each in call.arrays):
        return None, "the program already runs in float64"
    try:
        with call.settings():
            made = in_float64(call.closed, call.arrays)
    except Exception as error:  # a primitive that has no such form: eager alone is there to compare with
        return None, f"no float64 run: {in_one_line(error)}"
    return dict(zip(names, map(_tensor, made), strict=True)), ""


def _tensor(array: Any) -> Any:
    """A jax array as a tensor of the same values, for the comparison that all backends go through."""
    import jax
    import numpy as np

    if str(array.dtype).startswith("key<"):
        array = jax.random.key_data(array)
    held = np.asarray(array)
    if str(held.dtype) == "bfloat16":
        return torch.from_numpy(held.astype("float32").copy()).to(torch.bfloat16)
    if held.dtype.kind not in "biufc":  # float8 and the like: as numbers that torch's comparison knows
        held = held.astype("float32")
    return torch.from_numpy(held.copy())
