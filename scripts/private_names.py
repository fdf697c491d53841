"""The private names of torch and Triton that nbcompile uses: docs/private-names.md.

    python scripts/private_names.py             # write the table anew
    python scripts/private_names.py --missing   # only print, as JSON, those that this environment lacks

What begins with an underscore may change with any version, and of Triton also what its documentation leaves
out. Names are found in the source; those that are reached through a value (``HELD``) are written here.
Hooks into Inductor have a table of their own: ``HOOKS`` in ``nbcompile/backends/inductor/hooks.py``.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "private-names.md"
INSIDE_TRITON = ("_C", "runtime", "compiler", "backends", "knobs")

HELD = {
    f"triton.runtime.interpreter.{name}": (f"compiler/runtime/interpreter/{file}.py",)
    for names, file in (
        ("TensorHandle _get_np_dtype _patch_lang TritonSemantic", "interpret"),
        ("InterpreterBuilder InterpreterOptions ReduceOps ScanOps", "operations"),
    )
    for name in names.split()
}
"""Used by way of a value, where no scan of the source finds them."""

_ANEW = "every process compiles a captured graph anew"
OPTIONAL = {
    "torch._C._autograd._top_saved_tensors_default_hooks": _ANEW,
    "torch._C._functorch.peek_interpreter_stack": _ANEW,
    "torch._C._get_sdp_priority_order": _ANEW,
    "torch._C._len_torch_function_stack": _ANEW,
    "torch._dynamo.compiled_autograd.compiled_autograd_enabled": _ANEW,
    "torch._dynamo.config.caching_precompile": _ANEW,
    "torch._functorch._aot_autograd.autograd_cache.AOTAutogradCache": _ANEW,
    "torch._functorch._aot_autograd.autograd_cache.autograd_cache_key": _ANEW,
    "torch._functorch._aot_autograd.schemas.SerializableAOTDispatchCompiler": _ANEW,
    "torch._functorch.config.bundled_autograd_cache": _ANEW,
    "torch._decomp._core_aten_decompositions_post_autograd": "`core_aten_decompositions()` is asked instead",
    "torch._dynamo.symbolic_convert.InstructionTranslatorBase.frame_summary": "breaks without a last column",
    "torch._dynamo.variables.tensor": "one warning more",
    "torch._inductor.select_algorithm": "the candidates that were timed are not shown",
    "torch.ops.aten._scaled_dot_product_cudnn_attention": "another of torch's attentions is named",
    "torch._C._cuda_endAllocateToPool": "CPU builds of torch have no CUDA graphs",
    "torch._C._cuda_releasePool": "CPU builds of torch have no CUDA graphs",
}
"""Names that may be missing, and what is lost then."""


def _is_private(name: str) -> bool:
    top, *rest = name.split(".")
    if top == "triton" and rest and rest[0] in INSIDE_TRITON:
        return True
    return any(part.startswith("_") and not part.startswith("__") for part in rest)


def used() -> dict[str, tuple[str, ...]]:
    """Each private name and the files of the package that use it, relative to ``nbcompile/``."""
    found: dict[str, set[str]] = defaultdict(set)
    package = ROOT / "nbcompile"
    for file in sorted(package.rglob("*.py")):
        names = set(map(_to_the_graph, _names(ast.parse(file.read_text(encoding="utf-8")))))
        for name in names:
            if not any(other.startswith(f"{name}.") for other in names):
                found[name].add(file.relative_to(package).as_posix())
    for name, files in HELD.items():
        found[name].update(files)
    return {name: tuple(sorted(files)) for name, files in sorted(found.items())}


def _names(tree: ast.Module) -> Iterator[str]:
    known = {"torch": "torch", "triton": "triton"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            ours = [alias for alias in node.names if alias.name.split(".")[0] in known]
            known.update({alias.asname: alias.name for alias in ours if alias.asname})
            yield from (alias.name for alias in ours if _is_private(alias.name))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("torch", "triton"):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                known[alias.asname or alias.name] = name
                if _is_private(name):
                    yield name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = node.value.split(".")
            if (
                parts[0] in ("torch", "triton")
                and all(map(str.isidentifier, parts))
                and _is_private(node.value)
            ):
                yield node.value
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := _dotted(node, known)) and _is_private(name):
            yield name


def _to_the_graph(name: str) -> str:
    """A name without what stands behind ``V.graph``, which is there only while Inductor compiles."""
    head, found, _ = name.partition(".V.graph")
    return head + found


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value, known)):
        return f"{base}.{node.attr}"
    return ""


def is_there(name: str) -> bool:
    """Whether this environment has the name."""
    parts = name.split(".")
    value: Any = None
    for count, part in enumerate(parts, 1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        except ValueError:  # what stands before is no package
            return False
    return True


def missing(names: list[str]) -> list[str]:
    """Those of the names that are needed and not there; of Triton's none where Triton is not installed."""
    has_triton = importlib.util.find_spec("triton") is not None
    asked = (n for n in names if n not in OPTIONAL and (has_triton or not n.startswith("triton.")))
    return [name for name in asked if not is_there(name)]


def page() -> str:
    lines = [
        "# Private names of torch and Triton",
        "",
        "Written by `scripts/private_names.py`. A test holds that it is up to date, and that what is needed",
        "is there; `scripts/versions.py` asks it of every version that is allowed. What many files use",
        "(`OpOverload`, `tree_map`) has been there since torch 2.0.",
        "",
        "| name | used in `nbcompile/` | where it is missing |",
        "|---|---|---|",
    ]
    for name, files in used().items():
        shown = ", ".join(f"`{file}`" for file in files[:3])
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        lines.append(f"| `{name}` | {shown}{more} | {OPTIONAL.get(name, 'needed')} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--missing", action="store_true", help="print what this environment lacks")
    if parser.parse_args().missing:
        print(json.dumps(missing(list(used()))))
        return 0
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
