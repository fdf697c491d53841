"""What the coach says of a break, and of a loop of recompiles, in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from nbcompile.record.advice.coach import OF_SIZES, Mend, Price
from nbcompile.record.compilation import Compilation, GraphBreak, Recompile
from nbcompile.units import seconds_text, speed_text, wrap
from nbcompile.view.facts.cell_lines import break_line

_WIDTH = 90
_LOOP = 2
"""So many recompiles of one function are a loop of them."""
_CURES = (
    (OF_SIZES, "sizes change: torch._dynamo.mark_dynamic(x, dim) before the "
     "loop, or %%compile --dynamic"),
    (r"rank mismatch", "tensors of different numbers of dimensions come in: each has a graph of its own"),
    (r"another type", "a name holds a number at first, then a tensor: start with a tensor, torch.zeros(())"),
    (r"len\(|SEQUENCE_LENGTH", "a list or text grows: take what is read of it (its length) out "
     "of the function"),
    (r"requires_grad|GRAD_MODE|grad_mode", "gradients are on at times and off at others: use one of the two"),
    (r"dtype|device|stride", "tensors of different type, device or strides come in: convert before the call"),
    (r"self|_modules|\.__dict__", "a module's attribute counts: count outside of forward(), or set "
     "torch._dynamo.config.allow_unspec_int_on_nn_module = True"),
    (r"== ['\"]", "a text changes: look up what it names before the call, and hand that in"),
    (r"==|EQUALS|\bis\b", "a Python value changes: a number to compute with can be a tensor, "
     "torch.tensor(value); what it selects (as a key) can be looked up before"),
)  # fmt: skip


def coached(items: Sequence[GraphBreak | Recompile], place: int) -> list[str]:
    """The price of a break or recompile and its mend, as lines; of one that several share, at the first."""
    item = items[place]
    if item.mend is not None and item.mend.after:
        if any(each.mend is not None and each.mend.after == item.mend.after for each in items[:place]):
            return ["      the change above mends it too"]
    return [*_priced(item.price), *_mended(item.mend)]


def price_text(price: Price) -> str:
    """``costs 0.31 ms, 1 kernel, 1 graph a call (measured with and without it)``."""
    spent = [] if price.milliseconds is None else [spent_text(price.milliseconds)]
    counted = ((price.kernels, "kernel"), (price.graphs, "graph"))
    parts = [f"{count} {noun}{'s' * (abs(count) != 1)}" for count, noun in counted if count]
    parts = spent + parts if price.milliseconds else parts + spent
    how = "measured with and without it" if price.measured else price.how
    if price.once:
        return f"cost {', '.join(parts)} ({how})" if parts else ""
    if price.milliseconds and price.milliseconds < 0:
        beside = f" beside {', '.join(parts[1:])} more" if parts[1:] else ""
        return f"spares {spent_text(-price.milliseconds)} a call{beside} ({how})"
    verb = "costs at most" if price.most else "costs"
    return f"{verb} {', '.join(parts)} a call ({how})" if parts else ""


def spent_text(milliseconds: float) -> str:
    """A time, which may be too short to be told from noise."""
    return seconds_text(milliseconds / 1e3) if milliseconds else "no time that could be measured"


def mend_text(mend: Mend) -> str:
    """What became of a call with the mend, in one line."""
    if not mend.after:
        return f"not mended here: {mend.note}"
    figures = [
        f"graphs {mend.graphs_before} → {mend.graphs_after}",
        f"kernels {mend.kernels_before} → {mend.kernels_after}",
    ]
    if mend.milliseconds_before and mend.milliseconds_after:
        # As a ratio: it was timed by itself, and the cell's own time stands beside it.
        figures.append(f"{speed_text(mend.milliseconds_before / mend.milliseconds_after)} as fast")
    note = f"; {mend.note}" if mend.note else ""
    where = f" in {mend.cell}" if mend.cell else ""
    return f"mend: {mend.title}{where} ({', '.join(figures)}; agrees with eager{note})"


def _priced(price: Price | None) -> Iterator[str]:
    if price is not None and (text := price_text(price)):
        yield f"      {text}"


def _mended(mend: Mend | None) -> Iterator[str]:
    if mend is None:
        return
    yield from (f"      {line}" for line in wrap(mend_text(mend), _WIDTH, 4))
    yield from (f"      {line}" for line in mend.diff.split("\n")[2:] if line)


def _called(again: Recompile) -> str:
    """What users call what was compiled again: a part of a cell, or a call, is a function of ours."""
    if re.fullmatch(r"cell_\d+_\d+", again.function):
        return break_line(again.spans) or "the cell"
    return "the call" if again.function == "compiled_call" else again.function or "a function"


def most_typical(recompiles: Sequence[Recompile]) -> Recompile:
    """The last one of those for the reason that most have, but for the values in it."""
    kinds = [re.sub(r"'[^']*'|\"[^\"]*\"|-?\d+(?:\.\d+)?", "…", each.reason) for each in recompiles]
    most = Counter(kinds).most_common(1)[0][1]
    common = {kind for kind, count in Counter(kinds).items() if count == most}
    return next(each for each, kind in zip(recompiles[::-1], kinds[::-1], strict=True) if kind in common)


def loop_of_recompiles(compilation: Compilation) -> list[str]:
    """A sentence for each function that was compiled again and again, with what ends it."""
    counts = Counter(each.function for each in compilation.recompiles)
    told = []
    for function, count in counts.items():
        if count < _LOOP:
            continue
        typical = most_typical([each for each in compilation.recompiles if each.function == function])
        reason, called = typical.reason, _called(typical)
        cure = next((cure for pattern, cure in _CURES if re.search(pattern, reason)), "")
        told.append(f"{called} was compiled again {count} times: {reason}"
                    + (f". Cure: {cure}" if cure else ""))  # fmt: skip
    return told
