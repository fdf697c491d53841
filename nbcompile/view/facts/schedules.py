"""What the name of a schedule means, in a few words: the record has the name alone."""

from __future__ import annotations

import re

MEANINGS = {
    # pointwise
    "pointwise": "each element by itself",
    "by rows": "a program stays in one row: what is the same all along it is done once",
    "one part after another": "a program passes over those parts of what is joined that have no point of it",
    "part by part": "a program stays in one part of what is joined: what the others take is not computed",
    "bands of rows": "a program has pieces of neighbouring rows: what is the same all along one is done once",
    "square tiles": "memory is met in two orders, and a square piece suits both",
    # rows, on a GPU
    "persistent rows": "a program holds whole rows on chip",
    "longer ones looped": "those that are longer than its block it walks block by block",
    "looped rows": "a program walks its rows block by block",
    "rows shared by N programs": "each holds a part of the row on chip; they meet to combine results",
    "looped rows shared by N programs": "each walks a part of the row; they meet to combine results",
    "split rows": "each program reduces a part of a row, and a second function combines the parts",
    "lanes apart": "neighbours in memory are kept apart until the parts are combined",
    "pieces of rows": "each program has its piece of the rows, point by point",
    "partial sums over rows": "each program adds up its own rows, a second function adds those up",
    "scan": "running results along a row",
    # scatters
    "scatter": "each element goes where an index says",
    "scatter by listed axes": "for each place what goes there is listed first, and added up without atomics",
    "scatter by listed rows": "for each row what goes there is listed first, and added up without atomics",
    "scatter into a small table": "each program fills a table of its own, and a second function adds them up",
    # products
    "matrix product": "tiles of the result, each multiplied block by block",
    "persistent": "a program takes one tile after the other",
    # loops on a CPU
    "rows": "one row after the other",
    "columns": "neighbouring columns are reduced side by side",
    "split": "a large reduction in parts, combined in the end",
    "rows and split sums": "one row after the other; sums over them in parts, combined in the end",
    # XLA's kinds of fusion
    "loop fusion": "one loop over the elements of the result",
    "reduction fusion": "one loop over what is reduced",
    "output fusion": "computed with the results of a library call, as they come",
    "custom fusion": "done by a library that XLA hands it to",
}  # fmt: skip


def explained(schedule: str) -> list[tuple[str, str]]:
    """Each part of a schedule's name with its meaning; parts that are not known are left out."""
    parts = [" ".join(part.split()) for part in schedule.split(",")]
    # "rows shared by 4 programs", by however many
    known = ((part, MEANINGS.get(re.sub(r"\b\d+ programs$", "N programs", part))) for part in parts)
    return [(part, meaning) for part, meaning in known if meaning]
