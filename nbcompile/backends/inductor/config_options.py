"""Inductor's options with what its config module says of them.

Names and defaults are the module's; descriptions are the comments above or beside each in its source.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import tokenize
from typing import Any


@functools.cache
def inductor_options() -> tuple[dict[str, Any], ...]:
    """One mapping for each name of ``torch._inductor.list_options()``, with the fields of
    :class:`nbcompile.backends.browse.Option`."""
    import torch._inductor
    from torch._inductor import config

    about = comments(inspect.getsource(config))
    # A private table, for defaults and types; without it the values of now have to do.
    entries = getattr(config, "_config", {})
    values = config.get_config_copy()
    modes = torch._inductor.list_mode_options()
    found = []
    for name in torch._inductor.list_options():
        entry = entries.get(name)
        default = getattr(entry, "default", values.get(name))
        kind = getattr(entry, "value_type", None) or type(default)
        found.append(
            {
                "name": name,
                "type": getattr(kind, "__name__", str(kind)).replace("NoneType", ""),
                "default": repr(default),
                "about": about.get(name, ""),
                "values": ("true", "false") if kind is bool else (),
                "modes": {mode: set_[name] for mode, set_ in modes.items() if name in set_},
            }
        )
    return tuple(found)


def comments(source: str) -> dict[str, str]:
    """The comment of each assignment of a module, those in classes by ``class.name``."""
    own_line: dict[int, str] = {}
    beside: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            (own_line if alone else beside)[token.start[0]] = token.string.lstrip("# ").strip()
    found: dict[str, str] = {}
    _visit(ast.parse(source).body, "", own_line, beside, found)
    return found


def _visit(
    body: list[ast.stmt], prefix: str, own_line: dict[int, str], beside: dict[int, str], found: dict[str, str]
) -> None:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            _visit(statement.body, f"{prefix}{statement.name}.", own_line, beside, found)
        elif isinstance(statement, ast.If):
            _visit(statement.body, prefix, own_line, beside, found)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            above, line = [], statement.lineno - 1
            while line in own_line:
                above.append(own_line[line])
                line -= 1
            last = statement.end_lineno or statement.lineno
            said = [*reversed(above), *(beside[n] for n in range(statement.lineno, last + 1) if n in beside)]
            text = " ".join(part for part in said if part and not part.startswith(("type:", "pyrefly")))
            for target in targets:
                if isinstance(target, ast.Name) and text:
                    found[prefix + target.id] = text
