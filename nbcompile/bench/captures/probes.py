"""The probes: capture with the inputs given, change one thing, call, and hold the answer against eager's.

Nothing is looked up: every finding is of calls that were made, each way against its own framework running the
same function uncompiled, from the same state and random seed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from nbcompile.bench.captures.frameworks import Framework
from nbcompile.bench.captures.running import CallOutcome, difference, other_path, run, silent
from nbcompile.bench.captures.variants import (
    Arguments,
    InputVariant,
    around,
    changed,
    objects_around,
    other_dtype,
    other_numbers,
    other_sizes,
    other_values,
)
from nbcompile.bench.captures.ways import Captured, Way
from nbcompile.bench.measure.state import Snapshot
from nbcompile.errors import in_one_line
from nbcompile.record.captures import Case, Finding

_CALLS = 3


@dataclass
class Subject:
    """A function, or its port, under one way, and the inputs that it is captured with. ``lines`` collects the
    lines of ``file`` that eager ran in any probe."""

    way: Way
    fn: Callable[..., Any]
    args: Arguments
    others: Sequence[InputVariant]
    snapshot: Snapshot
    file: str
    lines: set[int] = field(default_factory=set)

    @property
    def framework(self) -> Framework:
        return self.way.framework

    def eager(self, args: Arguments, change: Callable[[], None] | None = None) -> CallOutcome:
        """The function uncompiled, from the saved state and random seed; ``change`` goes before the call."""
        self.snapshot.restore()
        if change is not None:
            change()
        outcome = run(self.fn, self.framework, args, file=self.file, trace=True)
        self.lines.update(outcome.path)
        return outcome

    def captured(self) -> Captured:
        """A capture of its own, which has seen the inputs given."""
        self.snapshot.restore()
        with silent():
            made = self.way.capture(self.fn, self.framework.arguments(self.args))
        if made.count is not None:  # it captures at its first call
            self.snapshot.restore()
            run(made.call, self.framework, self.args, file=self.file)
        return made

    def case(
        self,
        what: str,
        made: Captured,
        expected: CallOutcome,
        args: Arguments,
        change: Callable[[], None] | None = None,
    ) -> Case:
        """Call what was captured and judge its answer."""
        before = made.count() if made.count is not None else 0
        self.snapshot.restore()
        if change is not None:
            change()
        got = run(made.call, self.framework, args, file=self.file)
        after = made.count() if made.count is not None else 0
        if expected.error:
            told = f"eager raises {expected.error}, here {got.error or 'a value comes back'}"
            return Case(what, "right" if got.error else "silently wrong", told)
        if got.error:
            return Case(what, "raises", got.error)
        wrong = difference(expected.values, got.values)
        if wrong:
            return Case(what, "silently wrong", wrong)
        if after > before:
            return Case(
                what, "recompiles", f"right, after {after - before} more graph{'s' * (after - before > 1)}"
            )
        return Case(what, "right", "as eager")


def probe_all(subject: Subject, names: Sequence[str]) -> tuple[Finding, ...]:
    """The probes of these names, in order. The function's state is afterwards what it was."""
    found = []
    for name in names:
        try:
            cases = _PROBES[name](subject)
        except Exception as error:  # e.g. a second capture that fails where the first did not
            cases = [Case("", "not probed", in_one_line(error))]
        finally:
            subject.snapshot.restore()
        found.append(Finding(name, tuple(cases)))
    return tuple(found)


def _values(subject: Subject) -> list[Case]:
    variants = [*other_values(subject.args), *(v for v in subject.others if _like(v.args, subject.args))]
    start = subject.eager(subject.args)
    return _of_variants(subject, variants, start) or [Case("", "not probed", "no tensor among the inputs")]


def _of_variants(subject: Subject, variants: Sequence[InputVariant], start: CallOutcome) -> list[Case]:
    if not variants:
        return []
    made, cases = subject.captured(), []
    for variant in variants:
        expected = subject.eager(variant.args)
        if expected.error and not start.error:
            continue  # eager refuses such inputs too
        path = other_path(start.path, expected.path)
        what = f"{variant.what}, so {path}" if path else variant.what
        cases.append(subject.case(what, made, expected, variant.args))
    return cases or [Case("", "not probed", "eager itself refuses every other input that was made")]


def _sizes(subject: Subject) -> list[Case]:
    start = subject.eager(subject.args)
    chosen = []
    for group in other_sizes(subject.args):
        together, *alone = group
        working = [v for v in [together] if not subject.eager(v.args).error]
        chosen += working or [v for v in alone if not subject.eager(v.args).error][:1]
    chosen += [v for v in subject.others if not _like(v.args, subject.args)]
    return _of_variants(subject, chosen, start) or [Case("", "not probed", "eager takes no other sizes")]


def _numbers(subject: Subject) -> list[Case]:
    variants = other_numbers(subject.args)
    start = subject.eager(subject.args)
    return _of_variants(subject, variants, start) or [Case("", "not probed", "no number among the inputs")]


def _dtype(subject: Subject) -> list[Case]:
    variants = other_dtype(subject.args, subject.framework.alternative)
    start = subject.eager(subject.args)
    return _of_variants(subject, variants, start) or [Case("", "not probed", "no floating input")]


def _closure(subject: Subject) -> list[Case]:
    start, cases, unread = subject.eager(subject.args), [], []
    for place in around(subject.fn):
        new = changed(place.value)

        def change(put: Callable[[Any], object] = place.put, new: Any = new) -> None:
            put(new)

        try:
            expected = subject.eager(subject.args, change)
            if expected.error or not difference(start.values, expected.values):
                unread.append(place.name)
                continue
            place.put(place.value)
            made = subject.captured()
            cases.append(
                subject.case(_change_text(place.name, place.value, new), made, expected, subject.args, change)
            )
        finally:
            place.put(place.value)
    if cases:
        return cases
    told = (
        f"the result does not depend on {', '.join(unread)}"
        if unread
        else "it reads no number or tensor there"
    )
    return [Case("", "not probed", told)]


def _change_text(name: str, old: Any, new: Any) -> str:
    if isinstance(old, bool | int | float):
        return f"{name} {old!r} → {new!r}"
    return f"{name} is another tensor"


def _effects(subject: Subject) -> list[Case]:
    expected_prints, expected_state, start_state = _calls(subject, lambda: subject.fn)
    effects = any(expected_prints) or expected_state != start_state
    if not effects:
        return [Case("", "not probed", "it prints nothing and changes no object around it")]

    def capture() -> Callable[..., Any]:
        with silent():
            return subject.way.capture(subject.fn, subject.framework.arguments(subject.args)).call

    cases = []
    got_prints, got_state, _ = _calls(subject, capture)
    if any(expected_prints):
        cases.append(_printed(expected_prints, got_prints))
    for name, value in expected_state.items():
        if value != start_state.get(name):
            got = got_state.get(name)
            told = f"{name} is {got[:60]} after {_CALLS} calls" if got is not None else f"{name} is gone"
            same = got == value
            told += "" if same else f", eager's {value[:60]}"
            cases.append(Case("Python objects", "right" if same else "silently wrong", told))
    return cases


def _printed(expected: list[str], got: list[str]) -> Case:
    told = f"{sum(map(bool, got))} of {sum(map(bool, expected))} calls printed"
    other = next((b for a, b in zip(expected, got) if b and a != b), "")
    if other:
        told += f": {_flat(other)!r}, eager {_flat(expected[0])!r}"
    # The same numbers in other words (TorchScript prints tensors in its own way) are not wrong.
    right = list(map(_figures, expected)) == list(map(_figures, got)) and all(got)
    return Case("prints", "right" if right else "silently wrong", told)


def _flat(text: str) -> str:
    return " ".join(text.split())[:60]


def _figures(text: str) -> list[str]:
    """The decimal numbers in a text, to four digits."""
    return [f"{float(found):.4g}" for found in re.findall(r"-?\d+\.\d*(?:e-?\d+)?", text)]


def _calls(
    subject: Subject, get: Callable[[], Callable[..., Any]]
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """What each of three calls printed, and the objects around the function after and before them."""
    subject.snapshot.restore()
    before = _state(subject.fn)
    call = get()
    subject.snapshot.restore()  # what only capturing did is not done by the calls
    outcomes = [run(call, subject.framework, subject.args, file=subject.file) for _ in range(_CALLS)]
    printed = [f"raised {seen.error}" if seen.error else seen.printed for seen in outcomes]
    return printed, _state(subject.fn), before


def _state(fn: Callable[..., Any]) -> dict[str, str]:
    return {name: repr(value) for name, value in objects_around(fn).items()}


def _random(subject: Subject) -> list[Case]:
    drawn = _draws(subject, subject.fn)
    if len(set(drawn)) < 2:
        return [Case("", "not probed", "two calls give the same result")]
    made = subject.captured()
    got = _draws(subject, made.call)
    if any(text.startswith("raised") for text in got):
        return [Case("", "raises", got[0])]
    if len(set(got)) < len(set(drawn)):
        return [
            Case(
                "",
                "silently wrong",
                f"{len(set(got))} different results in {_CALLS} calls, eager {len(set(drawn))}",
            )
        ]
    told = "eager's own numbers" if got == drawn else "other numbers than eager's from the same seed"
    return [Case("", "right", f"every call draws anew: {told}")]


def _draws(subject: Subject, call: Callable[..., Any]) -> list[str]:
    """The results of three calls as text, cut to five digits, from one seed."""
    subject.snapshot.restore()
    found = []
    for _ in range(_CALLS):
        outcome = run(call, subject.framework, subject.args, file=subject.file)
        found.append(f"raised {outcome.error}" if outcome.error else _digits(outcome.values))
    return found


def _digits(values: Sequence[Any]) -> str:
    return " ".join(
        repr([f"{x:.4g}" for x in value.detach().flatten().tolist()[:64]])
        if isinstance(value, torch.Tensor) and not value.is_complex()
        else repr(value)
        for value in values
    )


def _mutation(subject: Subject) -> list[Case]:
    given = tuple(subject.framework.values(subject.framework.arguments(subject.args)))
    expected = subject.eager(subject.args)
    if not difference(given, expected.inputs):
        return [Case("", "not probed", "it leaves its inputs as they are")]
    made = subject.captured()
    subject.snapshot.restore()
    got = run(made.call, subject.framework, subject.args, file=subject.file)
    if got.error:
        return [Case("", "raises", got.error)]
    wrong = difference(expected.inputs, got.inputs)
    if wrong:
        return [Case("an input after the call", "silently wrong", wrong)]
    return [Case("", "right", "inputs are changed as eager changes them")]


def _like(args: Arguments, other: Arguments) -> bool:
    """Whether inputs have the same shapes and dtypes."""

    def facts(values: Arguments) -> list[Any]:
        return [(v.shape, v.dtype) for v in torch.utils._pytree.tree_leaves(values) if hasattr(v, "shape")]

    return facts(args) == facts(other)


_PROBES: dict[str, Callable[[Subject], list[Case]]] = {
    "values": _values,
    "sizes": _sizes,
    "numbers": _numbers,
    "closure": _closure,
    "effects": _effects,
    "random": _random,
    "mutation": _mutation,
    "dtype": _dtype,
}


def file_of(fn: Any) -> str:
    """The file that a function's code is in; for a module that of its forward."""
    if isinstance(fn, torch.nn.Module):
        fn = type(fn).forward
    code = getattr(inspect.unwrap(getattr(fn, "__func__", fn)), "__code__", None)
    return code.co_filename if code is not None else ""
