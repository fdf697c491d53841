"""A C function of one number has one result, however many of its numbers a loop takes at once.

glibc's exp for one number, and its SIMD versions for 4, 8 and 16, differ in the last bit for a fifth of all
numbers. A loop calls the widest for most of its points and a narrower one, or that for one number, for the
rest; another loop that computes the same value anew may be vectorized otherwise. Then equal numbers have
unequal results, and no element need be the largest of its row: ``x == x.amax()`` is false everywhere, and
the gradient of ``amax`` is 0/0. So all of them are sent to the widest version, each lane of which knows
nothing of the others. Its time is that of the call for one number, give or take some nanoseconds.

The symbols are local to a kernel's file, so that nothing else in the process is called otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_DECLARED = re.compile(r'simd\("notinbranch"\), const\)\) (float|double) (\w+)\(([^)]*)\);')

# How the operand of a narrower version fills a register of the widest. x86's vector ABI names b SSE, d AVX2,
# e AVX-512, and has operands in registers 0 and 1.
_SPREAD = {
    "b": {"float": "shufps $0, %xmm{0}, %xmm{0}", "double": "unpcklpd %xmm{0}, %xmm{0}"},
    "d": {
        "float": "vbroadcastss %xmm{0}, %ymm{0}", "double": "vbroadcastsd %xmm{0}, %ymm{0}",
        "b": "vinsertf128 $1, %xmm{0}, %ymm{0}, %ymm{0}",
    },
    "e": {
        "float": "vbroadcastss %xmm{0}, %zmm{0}", "double": "vbroadcastsd %xmm{0}, %zmm{0}",
        "b": "vshuff64x2 $0, %zmm{0}, %zmm{0}, %zmm{0}", "d": "vshuff64x2 $0x44, %zmm{0}, %zmm{0}, %zmm{0}",
    },
}  # fmt: skip
_LANES = {"b": 4, "d": 8, "e": 16}


def widest(machine: str, features: frozenset[str]) -> str:
    """The letter of the widest SIMD versions that this processor runs; empty where it is not an x86."""
    if machine != "x86_64":
        return ""
    return "e" if "avx512f" in features else "d" if "avx2" in features else "b"


def with_one_result(source: str, isa: str) -> str:
    """C text whose SIMD functions, of one number or of few, are the widest version's, called ``isa``."""
    if not isa:
        return source
    functions = dict.fromkeys(found.groups() for found in _DECLARED.finditer(source))
    lines = [line for kind, name, operands in functions for line in _sent(name, kind, operands, isa)]
    if not lines:
        return source
    text = "".join(f'  "{line}\\n"\n' for line in (".pushsection .text", *lines, ".popsection"))
    return f"{source}\n__asm__(\n{text});\n"


def _sent(name: str, kind: str, operands: str, isa: str) -> Iterator[str]:
    registers = range(operands.count(",") + 1)
    of = "v" * len(registers)

    def symbol(letter: str) -> str:
        return f"_ZGV{letter}N{_LANES[letter] // (1 if kind == 'float' else 2)}{of}_{name}"

    yield from _jump(name, _SPREAD[isa][kind], registers, symbol(isa))
    for letter, instruction in _SPREAD[isa].items():
        if letter in _LANES:
            yield from _jump(symbol(letter), instruction, registers, symbol(isa))


def _jump(label: str, instruction: str, registers: Sequence[int], there: str) -> Iterator[str]:
    yield f".type {label}, @function"
    yield f"{label}:"
    for register in registers:
        yield instruction.format(register)
    yield f"jmp {there}@PLT"
