"""What a record keeps of a compiler's texts."""

from __future__ import annotations

import pytest

from nbcompile.compiler.runtime.gpu.text import kept

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
