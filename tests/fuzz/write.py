"""A failing program as a test: a file in tests/fuzz/found/ that needs no generator."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fuzz.program import Program

FOLDER = Path(__file__).parent / "found"


def write_test(program: Program, message: Mapping[str, Any], target: str) -> Path:
    """Write ``tests/fuzz/found/test_KIND_DIGEST.py`` and return its path."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "__init__.py").touch()
    kind = re.sub(r"\W+", "_", message["kinds"][0]).strip("_").lower()
    path = FOLDER / f"test_{kind}_{program.digest}.py"
    path.write_text(test_source(program, kind, str(message.get("differences", [""])[0]), target))
    return path


def test_source(program: Program, kind: str, what: str, target: str = "cpu") -> str:
    """The text of a test of ``program``, which failed as ``what`` says."""
    said = re.sub(r"\s+", " ", what.replace('"', "'").replace("\\", "/"))
    facts = [f"    seed={program.seed},", "    inputs=("]
    facts += [f"        {_call(item)}," for item in program.inputs]
    facts += ["    ),", "    steps=("]
    facts += [f"        {_call(item)}," for item in program.steps]
    facts += [
        "    ),",
        f"    results={program.results!r},",
        f"    sizes={tuple(map(dict, program.sizes))!r},",
    ]
    usual = {"mode": "grad", "autocast": "", "inside": False, "dynamic": None, "captures": False, "meets": ()}
    for name, value in usual.items():
        if getattr(program, name) != value:  # None is not False
            facts.append(f"    {name}={getattr(program, name)!r},")
    lines = [
        f'"""Found by scripts/fuzz.py: {said[:70].strip()}."""',
        "",
        "from __future__ import annotations",
        "",
        "from tests.fuzz.check import agrees",
        "from tests.fuzz.program import Input, Program, Step",
        "",
        "PROGRAM = Program(",
        *facts,
        ")",
        "",
        "",
        f"def test_{kind}() -> None:",
        f"    agrees(PROGRAM{'' if target == 'cpu' else f', {target!r}'})",
        "",
    ]
    return "\n".join(lines)


def _call(item: Any) -> str:
    """A dataclass as Python, less what is the default."""
    said = []
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if field.default is dataclasses.MISSING:
            said.append(repr(value))
        elif value != field.default:
            said.append(f"{field.name}={value!r}")
    return f"{type(item).__name__}({', '.join(said)})"
