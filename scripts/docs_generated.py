"""The texts of the documentation that are made from the code itself: parsers, schema, options, notebooks."""

from __future__ import annotations

import argparse
import ast
import base64
import html
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this tree's package, also where another copy is installed

NOTEBOOKS = ROOT / "notebooks"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


# -- parsers ------------------------------------------------------------------------------------------


def magic() -> str:
    """Every option of ``%%compile``, from its parser."""
    from nbcompile.notebook.magics import NbCompile

    parser = vars(NbCompile)["compile"].parser
    rows = []
    for action in parser._actions:
        if action.help is argparse.SUPPRESS:
            continue
        names = ", ".join(f"`{name}{_value(action)}`" for name in action.option_strings)
        rows.append((names, _cell(str(action.help or "").replace("%%", "%"))))
    return _table(("option", "what it does"), rows)


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    shown = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    return f" [{shown}]" if action.nargs == "?" else f" {shown}"


def config() -> str:
    """The defaults that ``%config NbCompile.NAME = value`` sets."""
    from nbcompile.notebook.magics import NbCompile

    rows = [
        (
            f"`{name}`",
            f"`{trait.default()!r}`",
            _cell(trait.help),
        )
        for name, trait in sorted(NbCompile.class_own_traits(config=True).items())
    ]
    return _table(("name", "default", ""), rows)


def command_line() -> str:
    """``nbcompile --help``, and that of each command."""
    from nbcompile.cli import _parser

    parser = _parser()
    found = [_help(parser)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += [f"## nbcompile {name}\n\n{_help(sub)}" for name, sub in action.choices.items()]
    return "\n\n".join(found)


def _help(parser: argparse.ArgumentParser) -> str:
    return f"```text\n{parser.format_help().strip()}\n```"


# -- the record ---------------------------------------------------------------------------------------


def schema() -> str:
    """The record's JSON schema, a section a class."""
    from nbcompile.record.compilation import json_schema

    found = json_schema()
    parts = [f"## Compilation\n\n{_description(found)}\n\n{_fields(found)}"]
    for name, definition in found["$defs"].items():
        parts.append(f"## {name}\n\n{_description(definition)}\n\n{_fields(definition)}")
    return "\n\n".join(parts)


def _description(definition: Mapping[str, Any]) -> str:
    text = str(definition.get("description", ""))
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`")


def _fields(definition: Mapping[str, Any]) -> str:
    required = definition.get("required", ())
    rows = []
    for name, value in definition.get("properties", {}).items():
        default = (
            "required"
            if name in required
            else f"`{json.dumps(value['default'])}`"
            if "default" in value
            else ""
        )
        rows.append((f"`{name}`", _type(value), default, _cell(str(value.get("description", "")))))
    return _table(("field", "type", "default", ""), rows)


def _type(value: Mapping[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2].lstrip("#") or "Compilation"
        return f"[{name}](#{name.lower()})"
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return ", ".join(f"`{item}`" for item in value["enum"])
    for key in ("anyOf", "oneOf"):
        if key in value:
            return " or ".join(_type(item) for item in value[key])
    kind = value.get("type", "any")
    if kind == "array":
        return f"list of {_type(value.get('items', {}))}"
    if kind == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"mapping to {_type(value['additionalProperties'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def options() -> str:
    """nbcompile's own options, as ``%compile --list-options`` prints them."""
    from nbcompile.backends.browse import list_options

    return f"```text\n{list_options('nbcompile')}\n```"


def backends() -> str:
    """Every backend of the registry."""
    from nbcompile.backends import registry

    rows = [
        (f"`{name}`", _cell(item.summary), ", ".join(item.modes), "yes" if item.trains else "no",
         f"`{item.install}`" if item.install else "")
        for name, item in registry.backends().items()
    ]  # fmt: skip
    return _table(("backend", "what it is", "modes", "trains", "install"), rows)


def targets() -> str:
    """The chips that code can be made for."""
    from nbcompile.targets import CHIPS

    return ", ".join(f"`{name}`" for name in CHIPS)


def refusals() -> str:
    """Every ``Refusal(code, reason)`` of the fusion pass, read from its source."""
    from nbcompile.compiler.fuse.legality import COST

    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "nbcompile" / "compiler" / "fuse").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal"
            ):
                continue
            code, reason = (*node.args, None, None)[:2]
            if isinstance(code, ast.Constant):
                reasons = found.setdefault(str(code.value), [])
                text = _words(reason)
                text = text if re.search(r"\w", text) else "depends on the pair"
                if text not in reasons:
                    reasons.append(text)
    rows = [
        (f"`{code}`", _cell("; ".join(reasons)), "yes" if code in COST else "no")
        for code, reasons in sorted(found.items())
    ]
    return _table(("code", "reason", "can be forced"), rows)


def _words(node: ast.AST | None) -> str:
    """The text of a string, with an ellipsis for what is filled in; of anything else, nothing."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return ""


# -- notebooks ----------------------------------------------------------------------------------------


def notebooks() -> str:
    """The list of the notebooks, with the first sentences of each, and the table of their pages."""
    rows, names = [], []
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(file, as_version=4)
        seconds = notebook.metadata.get("nbcompile_run", {}).get("seconds")
        exercises = sum("exercise" in cell.metadata.get("tags", []) for cell in notebook.cells)
        number, title = file.stem.split("-", 1)[0], _title(notebook)
        names.append(f"notebooks/{file.stem}")
        rows.append(
            (
                number,
                f"[{title}](notebooks/{file.stem}.md)",
                str(exercises or ""),
                f"{seconds} s" if seconds else "",
            )
        )
    toctree = "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```"
    return _table(("", "notebook", "exercises", "one run of it took"), rows) + "\n\n" + toctree


def _title(notebook: nbformat.NotebookNode) -> str:
    for cell in notebook.cells:
        found = re.search(r"^# (.+)$", cell.source, re.M)
        if cell.cell_type == "markdown" and found:
            return found[1]
    return "Untitled"


def notebook_page(file: Path) -> dict[str, str | bytes]:
    """The page of a notebook, from its stored outputs, with the pictures that it shows."""
    notebook = nbformat.read(file, as_version=4)
    out: list[str] = []
    made: dict[str, str | bytes] = {}
    shown = False
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            out.append(_markdown(cell.source))
            continue
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        out.append(f"~~~~{{code-block}} ipython3\n{cell.source}\n~~~~")
        for place, output in enumerate(cell.outputs):
            shown = True
            out.append(_output(output, f"{file.stem}-{number}-{place}", made))
    if not shown:
        out.insert(1, "*This notebook is kept without the outputs of a run: open it and run its cells.*")
    made[f"notebooks/{file.stem}.md"] = "\n\n".join(part for part in out if part) + "\n"
    return made


def _markdown(source: str) -> str:
    # What stands in a fold is Markdown again, if blank lines surround it.
    text = re.sub(r"\]\((?:\./)?([\w-]+)\.ipynb\)", r"](\1.md)", source)
    return re.sub(r"\]\(\.\./([^)]+)\)", lambda match: f"] (`{match[1]}`)", text)


def _output(output: Mapping[str, Any], name: str, made: dict[str, str | bytes]) -> str:
    kind = output["output_type"]
    if kind == "stream":
        return _plain(output["text"])
    if kind == "error":
        return _plain("\n".join(output.get("traceback", ())))
    data = output.get("data", {})
    if "text/html" in data:
        inner = "\n".join(line for line in _joined(data["text/html"]).splitlines() if line.strip())
        return f'~~~~~{{raw}} html\n<div class="nb-output">\n{inner}\n</div>\n~~~~~'
    if "image/png" in data:
        made[f"notebooks/{name}.png"] = base64.b64decode(_joined(data["image/png"]))
        return f"![output of the cell]({name}.png)"
    if "image/svg+xml" in data:
        picture = base64.b64encode(_joined(data["image/svg+xml"]).encode()).decode()
        tag = f'<img alt="output of the cell" src="data:image/svg+xml;base64,{picture}">'
        return f'~~~~~{{raw}} html\n<div class="nb-output">{tag}</div>\n~~~~~'
    return _plain(_joined(data.get("text/plain", "")))


def _plain(text: str) -> str:
    text = _ANSI.sub("", _joined(text)).rstrip()
    return f"~~~~~{{code-block}} text\n:class: output\n\n{text}\n~~~~~" if text.strip() else ""


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


# -- Markdown -----------------------------------------------------------------------------------------


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    return "\n".join(
        [*lines, *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)]
    )


def _cell(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    return " ".join(html.escape(text, quote=False).split())


TEXTS: dict[str, Callable[[], str]] = {
    "magic": magic,
    "config": config,
    "command-line": command_line,
    "schema": schema,
    "options": options,
    "backends": backends,
    "targets": targets,
    "refusals": refusals,
    "notebooks": notebooks,
}


def files() -> dict[str, str | bytes]:
    """Whole files of the source tree that are made: pages of notebooks, and the schema itself."""
    from nbcompile.record.compilation import json_schema

    made: dict[str, str | bytes] = {}
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        made.update(notebook_page(file))
    made["_static/compilation.schema.json"] = json.dumps(json_schema(), indent=1)
    return made
