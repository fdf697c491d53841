"""Each kernel as the explorer's code view shows it: how it is launched, which lines of its texts to show."""

from __future__ import annotations

from dataclasses import dataclass

from nbcompile.record.compilation import Compilation, Kernel
from nbcompile.record.roofline import RooflinePoint
from nbcompile.view.facts.assembly import TITLES, listing, source_lines
from nbcompile.view.facts.kernels import launch_facts, time_facts


@dataclass(frozen=True)
class LaunchFact:
    """How a function is launched or what it takes, a few words; ``bad`` where that costs time."""

    text: str
    bad: bool = False


@dataclass(frozen=True)
class Text:
    """One of a kernel's texts: its language in words, and for texts that a compiler made the lines to show.

    ``left_out`` says what is not shown. The lists have an item for each line shown: ``skipped`` how many
    lines of the text are left out before it; ``made`` the line, from 1, of the kernel's first source that it
    was made for, 0 if none; ``cuts`` the columns left out, start and end in turn. Empty: all are shown.
    """

    language: str
    title: str
    about: str = ""
    left_out: str = ""
    skipped: tuple[int, ...] = ()
    made: tuple[int, ...] = ()
    cuts: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class KernelCode:
    """One kernel. ``time`` is what it takes, in words; ``launches`` has the facts of each of its functions;
    ``texts`` are in the order that one is made from the other, the one it was printed as first."""

    kernel: str
    time: str = ""
    launches: tuple[tuple[LaunchFact, ...], ...] = ()
    texts: tuple[Text, ...] = ()


def kernel_codes(compilation: Compilation, points: dict[str, RooflinePoint]) -> tuple[KernelCode, ...]:
    """The kernels of a record in its order; ``points`` are those of the roofline, by kernel."""
    return tuple(
        KernelCode(
            kernel.id,
            time_facts(points.get(kernel.id)),
            tuple(
                tuple(LaunchFact(text, bad) for text, bad in launch_facts(each, len(kernel.launches) > 1))
                for each in kernel.launches
            ),
            tuple(_texts(kernel)),
        )
        for kernel in compilation.kernels
    )


def _texts(kernel: Kernel) -> list[Text]:
    if not kernel.sources:
        return []
    order = list(TITLES)
    first, *rest = kernel.sources
    rest.sort(key=lambda name: order.index(name) if name in order else len(order))
    return [Text(first, *_titles(first)), *(_made(kernel, name, kernel.sources[first]) for name in rest)]


def _titles(language: str) -> tuple[str, str]:
    return TITLES.get(language, (language, ""))


def _made(kernel: Kernel, language: str, source: str) -> Text:
    read = listing(language, kernel.sources[language])
    skipped, last = [], -1
    for row in read.rows:
        skipped.append(row.number - last - 1)
        last = row.number
    cuts = tuple(tuple(column for cut in row.cuts for column in cut) for row in read.rows)
    made = tuple(source_lines(read, source))
    return Text(language, *_titles(language), read.left_out, tuple(skipped), made, cuts)
