"""What a record keeps of a compiler's texts."""

from __future__ import annotations

import pytest

from nbcompile.compiler.runtime.gpu.text import canonical, kept
from nbcompile.compiler.stages import Argument, Launch

FOLDER = "/home/me/.cache/nbcompile/86/864e"


@pytest.mark.parametrize(
    ("kind", "made", "expected"),
    [
        ("ttir", f'#loc1 = loc("{FOLDER}/kernels.py":29:37)', '#loc1 = loc("kernels.py":29:37)'),
        (
            "llir",
            f'!1 = !DIFile(filename: "kernels.py", directory: "{FOLDER}")',
            '!1 = !DIFile(filename: "kernels.py", directory: "")',
        ),
        ("sass", f'//## File "{FOLDER}/kernels.py", line 22', '//## File "kernels.py", line 22'),
        (
            "sass",
            f'//## File "{FOLDER}/standard.py", line 9 inlined at "{FOLDER}/kernels.py", line 22',
            '//## File "standard.py", line 9 inlined at "kernels.py", line 22',
        ),
        (
            "ptx",
            f'\tret;\n}}\n\t.file\t1 "{FOLDER}/kernels.py"\n\t.section\t.debug_abbrev\n\t{{\n.b8 1\n\t}}\n',
            '\tret;\n}\n\t.file\t1 "kernels.py"\n',
        ),
        ("llir", '@.str = constant [5 x i8] c"/a/b"', '@.str = constant [5 x i8] c"/a/b"'),
        ("amdgcn", "\ts_endpgm\n\t.section\t.debug_abbrev\n", "\ts_endpgm\n\t.section\t.debug_abbrev\n"),
    ],
)
def test_no_folders_and_no_lists_of_bytes(kind: str, made: str, expected: str) -> None:
    assert kept(kind, made) == expected


FILE = """
import triton
import triton.language as tl

HALF = 0.5

@triton.jit
def _twice(x):
    return x * 2

@triton.jit
def k0(a, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # where
    x = tl.load(a + at, mask=at < n, other=0.0)
    tl.store(out + at, _twice(x) * HALF, mask=at < n)
"""
POINTERS = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32"}


def told(text: str, *arguments: str, function: str = "k0") -> list[str]:
    given = [Argument(name, POINTERS[name]) for name in arguments or ("a", "out", "n")]
    return canonical(text, Launch(function, "k0", tuple(given), ("1",), ()))


def test_names_comments_and_lines_do_not_count() -> None:
    other = FILE.replace("k0", "k7").replace("at", "where").replace("# where", "# there\n")
    other = other.replace("(a,", "(b,").replace("(a +", "(b +").replace("x = ", "\n    x = ")
    assert told(other, "b", "out", "n", function="k7") == told(FILE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.0)", "-0.0)"), ("other=0.0", "other=0"), ("HALF = 0.5", "HALF = 0.25"), ("x * 2", "x * 3"),
        ("tl.load", "tl.loaded"), ("mask=at < n)", "cache=at < n)"), ("(out + at, _", "(a + at, _"),
        ("BLOCK: tl.constexpr", "BLOCK"), ("a, out, n", "out, a, n"), ("n, BLOCK", "m, BLOCK"),
        ("_twice(x) * HALF", "HALF * _twice(x)"), ("at < n, other", "at <= n, other"),
    ],
)  # fmt: skip
def test_all_else_counts(old: str, new: str) -> None:
    assert FILE.count(old) >= 1
    assert told(FILE.replace(old, new)) != told(FILE)


def test_what_a_default_names_counts() -> None:
    by_default = FILE.replace("_twice(x):", "_twice(x, by: tl.constexpr = HALF):").replace(") * HALF", ")")
    assert told(by_default.replace("HALF = 0.5", "HALF = 0.25")) != told(by_default)
