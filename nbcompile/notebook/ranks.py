"""``%%compile --ranks N``: the cell on N ranks, engines of an ipyparallel cluster that stays for the next.

What the cell imports and defines, the session imports and defines too. The rest of the cell runs on the
ranks, and what rank 0 made of the session's names comes back.
"""

from __future__ import annotations

import ast
import atexit
from typing import Any

from IPython.core.error import UsageError

from nbcompile.bench.ranks.ranks import Ranks, names_read
from nbcompile.bench.ranks.task import RankCell
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.cell.compiling import settings_of
from nbcompile.notebook.progress import OutputPlace
from nbcompile.record.ranks import RankRecord, RanksResult

_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_clusters: dict[int, Ranks] = {}


def run_cell(
    shell: Any, line: str, cell: str, options: CellOptions, place: OutputPlace, timeout: float
) -> RanksResult:
    """Run a cell on ranks and bring the session up to date. RanksError as of :meth:`Ranks.run` has it."""
    source = f"\n{cell}"  # the magic line counts
    if shell.transform_cell(source).strip() != cell.strip():
        raise UsageError("--ranks runs Python only: put magics and ! commands into a cell of their own")
    whole = f"%%compile {line}\n{cell}"
    filename = shell.compile.cache(f"# {whole}", shell.displayhook.prompt_count, raw_code=whole)
    tree = ast.parse(source, filename)
    namespace: dict[str, Any] = shell.user_ns
    read = set(names_read(source, filename))
    missing = [name for name in options.split if not (name in read and name in namespace)]
    if missing:
        raise UsageError(f"--split {','.join(missing)}: no tensor of that name is read by the cell")
    definitions = [node for node in tree.body if isinstance(node, _DEFINITIONS)]
    exec(compile(ast.Module(list(definitions), []), filename, "exec"), namespace)
    ranks = _cluster(options.ranks)
    ranks.timeout = timeout
    result = ranks.run(
        source,
        namespace,
        parallel=options.parallel,
        split=options.split,
        **settings_of(options).keywords,
        measure=options.bench,
        cell=RankCell(
            filename,
            shell.displayhook.prompt_count,
            tuple(name for node in definitions for name in _bound_by(node)),
        ),
        progress=place.progress,
    )
    for name in result.deleted:
        namespace.pop(name, None)
    namespace.update(result.values)
    return result


def stop() -> None:
    """End the ranks of this session (``%compile --ranks-stop``). The next cell starts others."""
    while _clusters:
        _clusters.popitem()[1].stop()


def show_ranks(result: RanksResult, place: OutputPlace) -> None:
    """What the ranks printed, and in place of the progress the table of ranks."""
    for title, text in printed(result.ranks):
        print("\n".join(f"{title}: {row}" for row in text.rstrip("\n").split("\n")))
    place.show({"text/html": result._repr_html_(), "text/plain": result.text})


def printed(ranks: tuple[RankRecord, ...]) -> list[tuple[str, str]]:
    """(who, what) for each text that was printed; what several ranks printed alike is there once."""
    by_text: dict[str, list[int]] = {}
    for record in ranks:
        if record.output.strip():
            by_text.setdefault(record.output, []).append(record.rank)
    return [
        (f"rank{'s' if len(who) > 1 else ''} {', '.join(map(str, who))}", text)
        for text, who in by_text.items()
    ]


def _cluster(size: int) -> Ranks:
    """The ranks of this session; of another number of them, those before are ended."""
    if size not in _clusters:
        stop()
        _clusters[size] = Ranks(size, engines="ipyparallel")
    return _clusters[size]


def _bound_by(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return [node.name]


atexit.register(stop)
