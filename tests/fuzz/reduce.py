"""Make a failing program small: whatever can go without its failure going, goes.

Every candidate has to be a program that eager takes, and to fail in a way that the first one did.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from tests.fuzz.draw import without_unread_inputs
from tests.fuzz.execute import Outcome, Runner
from tests.fuzz.program import NAME, Input, Program, Step

Fails = Callable[[Program], bool]


def reduce(program: Program, fails: Fails, seconds: float = 120.0) -> Program:
    """The smallest program found in that time that still ``fails``, its values numbered anew."""
    end = time.monotonic() + seconds
    best = program
    seen = {program.to_json()}
    going = True
    while going:
        going = False
        for candidate in candidates(best):
            if time.monotonic() > end:
                return renamed(best)
            text = candidate.to_json()
            if text in seen:
                continue
            seen.add(text)
            if taken(candidate) and fails(candidate):
                best, going = candidate, True
                break
    return renamed(best)


def taken(program: Program) -> bool:
    """Whether eager runs the program in every call, its gradients included."""
    if not program.inputs and not program.steps:
        return False
    try:
        runner = Runner(program)
        return all(runner.run(call).error is None for call in range(len(program.sizes)))
    except Exception:  # the arguments themselves
        return False


def candidates(program: Program) -> Iterator[Program]:
    """Smaller programs, those that leave out most first."""
    yield from _slices(program)
    for most in (4, 8):  # small tensors make all that follows quick
        small = tuple({name: min(size, most) for name, size in sizes.items()} for sizes in program.sizes)
        if small != tuple(program.sizes):
            yield replace(program, sizes=small)
    for made in _fewer_steps(program):
        yield without_unread_inputs(made)
    yield from _fewer_results(program)
    yield from _plainer_circumstances(program)
    yield from _cut(program)
    yield from _plainer_inputs(program)
    yield from _plainer_steps(program)
    yield from _smaller_sizes(program)


# -- steps ------------------------------------------------------------------------------------------


def _slices(program: Program) -> Iterator[Program]:
    """One result alone with what it is made from: without what is overwritten, then with all of that."""
    for name in program.results if len(program.results) > 1 else ():
        for writing in (False, True):
            yield _sliced(program, (name,), writing)
    for writing in (False, True):
        made = _sliced(program, program.results, writing)
        if len(made.steps) < len(program.steps):
            yield made


def _sliced(program: Program, results: tuple[str, ...], writing: bool) -> Program:
    """The steps that ``results`` come from, and those that overwrite, if ``writing``."""
    wanted, steps = set(results), []
    for step in reversed(program.steps):
        if wanted & set(step.results) or (step.writes and (writing or step.writes in wanted)):
            steps.append(step)
            wanted |= set(step.operands)
    return without_unread_inputs(replace(program, steps=tuple(steps[::-1]), results=results))


def _fewer_steps(program: Program) -> Iterator[Program]:
    """Without runs of steps, long ones first; what used their results uses another value like them."""
    pool = _values(program)
    count = len(program.steps)
    length = max(count // 2, 1)
    while length:
        for start in range(count - length, -1, -1):
            yield from _without(program, range(start, start + length), pool)
        length //= 2


def _without(program: Program, gone: range, pool: dict[str, tuple[object, ...]]) -> Iterator[Program]:
    """The program without these steps: unread results just go, read ones are replaced."""
    lost = {name for place in gone for name in program.steps[place].results}
    kept = [step for place, step in enumerate(program.steps) if place not in gone]
    results = tuple(name for name in program.results if name not in lost)
    read = {name for step in kept for name in step.operands} & lost
    if not read:
        yield replace(program, steps=tuple(kept), results=results)
        return
    if len(gone) > 2:
        return
    before = [item.name for item in program.inputs]
    before += [name for step in program.steps[: gone.start] for name in step.results]
    operands = [name for place in gone for name in program.steps[place].operands]
    exchange: dict[str, str] = {}
    for name in read:
        like = [
            other for other in [*operands, *before] if other not in lost and pool.get(other) == pool.get(name)
        ]
        if not like:
            return
        exchange[name] = like[0]
    steps = tuple(_exchanged(step, exchange) for step in kept)
    yield replace(program, steps=steps, results=results or tuple(exchange.values())[:1])
    if results != program.results:
        yield replace(
            program,
            steps=steps,
            results=tuple(
                exchange.get(name, name) for name in program.results if name in exchange or name not in lost
            ),
        )


def _exchanged(step: Step, exchange: dict[str, str]) -> Step:
    code = NAME.sub(lambda found: exchange.get(found[0], found[0]), step.code)
    return replace(step, code=code, writes=exchange.get(step.writes, step.writes))


def _values(program: Program) -> dict[str, tuple[object, ...]]:
    """Shape and dtype of every value, in the first call, as it is when it is made."""
    found: dict[str, tuple[object, ...]] = {}
    runner = Runner(program)

    def all_of_them(*arguments: torch.Tensor) -> tuple[object, ...]:
        import torch.nn.functional as F

        scope: dict[str, object] = {"torch": torch, "F": F}
        scope |= dict(zip((item.name for item in program.inputs), arguments))
        found.update({item.name: _kind(scope[item.name]) for item in program.inputs})
        with runner.surroundings(always=True):
            for step in program.steps:
                exec(step.line, scope)
                found.update({name: _kind(scope[name]) for name in step.results})
        return ()

    outcome: Outcome = runner.run(0, all_of_them)
    return found if outcome.error is None else {}


def _kind(value: object) -> tuple[object, ...]:
    return (value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else (type(value),)


def _cut(program: Program) -> Iterator[Program]:
    """With a fresh argument in place of a step's result, so that what made it can go."""
    pool = _values(program)
    for place in range(len(program.steps) - 1, -1, -1):
        step = program.steps[place]
        if len(step.results) != 1 or not step.operands:
            continue
        name = step.results[0]
        kind = pool.get(name)
        if kind is None or len(kind) != 2:
            continue
        dtype = str(kind[0]).removeprefix("torch.")
        for fill in ("normal", "index:2") if dtype in ("int64", "int32") else ("normal", "positive"):
            for grad in (
                (True, False) if program.trains and dtype.startswith(("float", "bfloat")) else (False,)
            ):
                fresh = Input(name, _term(program, step, kind[1]), dtype, fill, grad=grad)
                steps = program.steps[:place] + program.steps[place + 1 :]
                yield without_unread_inputs(replace(program, inputs=(*program.inputs, fresh), steps=steps))


def _term(program: Program, step: Step, shape: object) -> str:
    """A shape in terms of the sizes, where these change between calls."""
    terms = []
    for size in shape:  # type: ignore[attr-defined]
        named = [name for name, value in program.sizes[0].items() if value == size]
        terms.append(named[0] if named and len(program.sizes) > 1 else str(size))
    return f"({', '.join(terms)}{',' if len(terms) == 1 else ''})"


_LITERAL = re.compile(r"(?<![\w.])\d+(?![\w.])")
_NESTED = re.compile(r"\(\s*(v\d+)[^()]*\)")


def _plainer_steps(program: Program) -> Iterator[Program]:
    """With smaller numbers in the text, and operations in place of rarer ones."""
    for place, step in enumerate(program.steps):
        for code in _plainer(step.code):
            changed = replace(step, code=code)
            yield without_unread_inputs(
                replace(program, steps=(*program.steps[:place], changed, *program.steps[place + 1 :]))
            )


def _plainer(code: str) -> Iterator[str]:
    for found in _LITERAL.finditer(code):
        for smaller in ("0", "1"):
            if int(found[0]) > int(smaller) and found[0] != smaller:
                yield code[: found.start()] + smaller + code[found.end() :]
    for tail in (
        ", keepdim=True",
        ", True",
        ".abs()",
        ".long()",
        " + 1",
        " * 0.5",
        ", stable=True",
        ", descending=False",
    ):
        if tail in code:
            yield code.replace(tail, "", 1)
    names = NAME.findall(code)
    for name in dict.fromkeys(names):
        for other in dict.fromkeys(names):
            if name != other:
                yield re.sub(rf"\b{name}\b", other, code)


# -- the rest ---------------------------------------------------------------------------------------


def _fewer_results(program: Program) -> Iterator[Program]:
    if len(program.results) > 1:
        for name in program.results:
            yield replace(program, results=(name,))
        for place in range(len(program.results)):
            yield replace(program, results=program.results[:place] + program.results[place + 1 :])


def _plainer_circumstances(program: Program) -> Iterator[Program]:
    if len(program.sizes) > 1:
        yield replace(program, sizes=program.sizes[:1])
        yield replace(program, sizes=program.sizes[-1:])
        yield replace(program, sizes=program.sizes[:2])
    if program.dynamic is not None:
        yield replace(program, dynamic=None)
    if program.autocast:
        yield replace(program, autocast="")
    if program.mode != "grad":
        yield replace(
            program, mode="grad", inputs=tuple(replace(item, grad=False) for item in program.inputs)
        )
        yield replace(program, mode="grad")
        yield replace(program, mode="train")
    if program.inside:
        yield replace(program, inside=False)
    if program.meets:
        yield replace(program, meets=())
    if program.captures:
        yield replace(program, captures=False)


def _plainer_inputs(program: Program) -> Iterator[Program]:
    """Plain layouts, no gradients, float32."""
    pool = _values(program)

    def changed(place: int, **how: object) -> Program:
        item = replace(program.inputs[place], **how)  # type: ignore[arg-type]
        return replace(program, inputs=(*program.inputs[:place], item, *program.inputs[place + 1 :]))

    for place, item in enumerate(program.inputs):
        kind = pool.get(item.name)
        if item.grad:
            yield changed(place, grad=False)
        if item.base or item.view != "b":
            if kind is not None and len(kind) == 2:
                shape = _term(program, program.steps[0], kind[1]) if program.steps else item.shape
                yield changed(place, base="", view="b", shape=shape)
        if item.fill not in ("normal",):
            yield changed(place, fill="normal")
        if item.dtype not in ("float32",):
            yield changed(place, dtype="float32", fill="normal")
    floats = ("float64", "bfloat16", "float16")
    if any(item.dtype in floats for item in program.inputs):
        inputs = tuple(
            replace(item, dtype="float32") if item.dtype in floats else item for item in program.inputs
        )
        yield replace(program, inputs=inputs)
    for place, item in enumerate(program.inputs):
        terms = re.findall(r"[^(),]+", item.shape)
        if item.view == "b" and not item.base:
            for gone in range(len(terms)):
                left = [term.strip() for number, term in enumerate(terms) if number != gone and term.strip()]
                yield changed(place, shape=f"({', '.join(left)}{',' if len(left) == 1 else ''})")
            for axis, term in enumerate(terms):
                if term.strip().isdigit() and int(term) > 1:
                    smaller = [str(int(term) // 2) if n == axis else t.strip() for n, t in enumerate(terms)]
                    yield changed(place, shape=f"({', '.join(smaller)}{',' if len(smaller) == 1 else ''})")


def _smaller_sizes(program: Program) -> Iterator[Program]:
    for call, sizes in enumerate(program.sizes):
        for name, size in sizes.items():
            for smaller in (1, 2, 3, 4, size // 2, size - 1):
                if 0 < smaller < size:
                    again = {**sizes, name: smaller}
                    if len({tuple(item.items()) for item in program.sizes}) == 1:
                        yield replace(program, sizes=(again,) * len(program.sizes))
                    yield replace(program, sizes=(*program.sizes[:call], again, *program.sizes[call + 1 :]))
    used = {name for item in program.inputs for name in re.findall(r"\b[A-D]\b", item.shape + item.view)}
    left = tuple({name: size for name, size in sizes.items() if name in used} for sizes in program.sizes)
    if left != tuple(program.sizes):
        yield replace(program, sizes=left)


def renamed(program: Program) -> Program:
    """With the values numbered in order of appearance."""
    names: dict[str, str] = {}
    for name in [item.name for item in program.inputs] + [
        name for step in program.steps for name in step.results
    ]:
        names[name] = f"v{len(names)}"

    def again(text: str) -> str:
        return NAME.sub(lambda found: names.get(found[0], found[0]), text)

    return replace(
        program,
        inputs=tuple(replace(item, name=again(item.name), base=again(item.base)) for item in program.inputs),
        steps=tuple(
            replace(
                step,
                code=again(step.code),
                results=tuple(map(again, step.results)),
                writes=again(step.writes),
            )
            for step in program.steps
        ),
        results=tuple(map(again, program.results)),
        meets=tuple(map(again, program.meets)),
    )
