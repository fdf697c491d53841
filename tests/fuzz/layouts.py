"""Draw an argument: what it is a view of, and where its elements lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.draw import Draw

FLOATS = ["float32", "float64", "bfloat16", "float16"]
OTHERS = [
    "float32",
    "int64",
    "bool",
    "int32",
    "float64",
    "bfloat16",
    "float16",
    "uint8",
    "int8",
    "int16",
    "complex64",
]


def draw(d: Draw) -> tuple[str, str, str, str, str]:
    """(shape, dtype, fill, view, base) of a new argument."""
    if d.inputs and d.chance(0.22):
        return over_another(d)
    dtype = d.main if d.chance(0.75) else d.choice(OTHERS)
    terms = shape(d)
    fill = "normal"
    if dtype in FLOATS:
        fill = d.choice(["normal", "positive", "few", "unit"], [8, 1.5, 1, 1])
        if d.special and d.chance(0.5):
            fill = "special"
    elif dtype in ("int64", "int32") and d.chance(0.4):
        fill = d.choice([f"index:{min(d.dims.values()) or 1}", "index:2", "distinct"])
    made, view = layout(d, terms)
    return _tuple(made), dtype, fill, view, ""


def shape(d: Draw) -> list[str]:
    """Sizes as Python."""
    rank = d.choice([0, 1, 2, 3, 4, 5], [1, 3, 8, 6, 4, 0.5])
    terms = [d.choice(list(d.dims)) if d.chance(0.8) else str(d.choice([1, 2, 3, 4, 8])) for _ in range(rank)]
    if d.sizes == [d.sizes[0]] and d.chance(0.05) and rank:
        terms[d.integer(0, rank - 1)] = "1"
    return terms


def layout(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    """The base's sizes, and the view of it that has the sizes ``terms``."""
    rank = len(terms)
    kinds = {"plain": 9.0}
    if rank:
        kinds |= {
            "steps": 2,
            "offset": 1.5,
            "expanded": 1,
            "overlapping": 0.5,
            "flat": 0.5,
            "as_strided": 0.5,
        }
    if rank >= 2:
        kinds |= {"permuted": 3, "selected": 0.5, "diagonal": 0.3}
    if rank in (4, 5):
        kinds["channels_last"] = 3
    return LAYOUTS[d.choice(list(kinds), list(kinds.values()))](d, terms)


def _plain(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    return terms, "b"


def _steps(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    axis, step = d.integer(0, len(terms) - 1), d.integer(2, 3)
    base = list(terms)
    base[axis] = f"{terms[axis]} * {step}"
    start = d.choice(["", "1"])
    return base, f"b[{':, ' * axis}{start}::{step}]"


def _offset(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    axis, before, after = d.integer(0, len(terms) - 1), d.integer(0, 3), d.integer(0, 2)
    base = list(terms)
    base[axis] = f"{terms[axis]} + {before + after}"
    return base, f"b[{':, ' * axis}{before}:{before} + {terms[axis]}]"


def _expanded(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    axis = d.integer(0, len(terms) - 1)
    base = list(terms)
    base[axis] = "1"
    return base, f"b.expand({', '.join(terms)})"


def _overlapping(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    """A window that slides over one line."""
    length = " + ".join(terms)
    return [length], f"b.as_strided({_tuple(terms)}, {_tuple(['1'] * len(terms))})"


def _as_strided(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    """Rows with a gap after each."""
    strides, product = [], "1"
    for term in reversed(terms):
        strides.append(product)
        product = f"{product} * ({term} + 1)"
    return [f"{product} + 2"], f"b.as_strided({_tuple(terms)}, {_tuple(strides[::-1])}, 2)"


def _flat(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    return [" * ".join(terms)], f"b.view({', '.join(terms)})"


def _permuted(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    order = d.random.sample(range(len(terms)), len(terms))
    base = [""] * len(terms)
    for place, axis in enumerate(order):
        base[axis] = terms[place]
    return base, f"b.permute({', '.join(map(str, order))})"


def _selected(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    axis = d.integer(0, len(terms))
    return [*terms[:axis], "3", *terms[axis:]], f"b.select({axis}, {d.integer(0, 2)})"


def _diagonal(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    return [terms[-1], terms[-1], *terms[:-1]], "b.diagonal()"


def _channels_last(d: Draw, terms: list[str]) -> tuple[list[str], str]:
    base = [terms[0], *terms[2:], terms[1]]
    order = [0, len(terms) - 1, *range(1, len(terms) - 1)]
    return base, f"b.permute({', '.join(map(str, order))})"


LAYOUTS = {
    "plain": _plain,
    "steps": _steps,
    "offset": _offset,
    "expanded": _expanded,
    "overlapping": _overlapping,
    "as_strided": _as_strided,
    "flat": _flat,
    "permuted": _permuted,
    "selected": _selected,
    "diagonal": _diagonal,
    "channels_last": _channels_last,
}


def over_another(d: Draw) -> tuple[str, str, str, str, str]:
    """A view of the memory of an argument that is there: the same elements, or some of them."""
    base = d.choice([item for item in d.inputs if not item.base] or d.inputs)
    views = [
        base.view,
        "b",
        "b.reshape(-1)",
        "b.flatten()[1:]",
        "b[1:]",
        "b[:-1]",
        "b[::2]",
        "b[..., 1:]",
        "b.mT",
        "b[..., :1]",
        "b[0]",
        "b.unsqueeze(0)",
        "b[:1]",
        "b.t()",
        "b.transpose(0, -1)",
    ]
    return base.shape, base.dtype, base.fill, d.choice(views), base.name


def _tuple(terms: list[str]) -> str:
    return f"({terms[0]},)" if len(terms) == 1 else f"({', '.join(terms)})"
