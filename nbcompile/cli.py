"""The ``nbcompile`` command: ``nbcompile bench`` compiles and times a suite, ``nbcompile diff`` holds two of
its files against each other, ``nbcompile show`` prints a saved record, ``nbcompile open`` what TORCH_TRACE
wrote, ``nbcompile class`` how far a class is."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from nbcompile.errors import NbcompileError, OptionError
from nbcompile.record.diff import KINDS
from nbcompile.view.facts.parts import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable

_BENCH = """Compile, check and time every case of a suite: a Python file whose functions marked with
@nbcompile.case return a function and its inputs. Exit status: 1 if a case fails, 2 if the suite cannot be
run."""
_DIFF = """Say what got worse from one file of `nbcompile bench` to a later one (or from one saved record to
another): new breaks and recompiles, more kernels, lost fusions, fallbacks, larger errors, longer times. Exit
status: 1 if there is a regression to fail on, 2 if a file cannot be read."""
_SHOW = """Print the records of a file: what %%compile --save wrote, a page, or a notebook with its outputs.
torch need not be installed. A terminal gets colours, unless NO_COLOR is set. Exit status: 2 if there is no
record in the file."""
_OPEN = """Say what torch.compile did on a job that ran with TORCH_TRACE=FOLDER in its environment: each
compilation, how it ended and why, and which ranks compiled something else. torch need not be installed."""

_CLASS = """How far the participants of a class are, from the files that they keep in a shared folder: which
exercises are solved, which were tried how often, and where the class is stuck. torch need not be installed.
Exit status: 2 if there is nobody's file in the folder. A file that cannot be read is left out, and named."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status. SystemExit (2) for arguments that cannot be meant."""
    parsed = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = parsed.command
    try:
        status = command(parsed)
        sys.stdout.flush()
        return status
    except (
        BrokenPipeError
    ):  # whoever read us, such as `head`, has had enough: Python is not to flush once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except NbcompileError as error:
        print(f"nbcompile: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nbcompile: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "nbcompile", description="Watch what compilers make of PyTorch programs."
    )
    parser.add_argument("--version", action="version", version=_versions())
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_bench(commands)
    _add_diff(commands)
    _add_show(commands)
    _add_open(commands)
    _add_class(commands)
    return parser


def _versions() -> str:
    """This package's version, and those that decide what it does."""
    found = []
    for name in ("nbcompile", "torch", "triton"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} is not installed")
    return ", ".join([*found, f"Python {platform.python_version()}"])


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser("bench", help="compile and time a suite", description=_BENCH)
    bench.add_argument("suite", help="the Python file")
    bench.add_argument("--save", metavar="FILE", help="write records and times to this .json file")
    bench.add_argument("--backend", default="nbcompile", help="what compiles (default: %(default)s)")
    bench.add_argument("--mode", help="a mode of the backend, e.g. max-autotune")
    bench.add_argument(
        "-o", dest="option", action="append", default=[], type=_pair, metavar="NAME=VALUE",
        help="an option of nbcompile; may be repeated",
    )  # fmt: skip
    bench.add_argument(
        "--only", default="", metavar="NAMES", help="cases between commas; * stands for anything"
    )
    bench.add_argument("--threads", type=_positive(int), default=1, metavar="N", help="of torch (default: 1)")
    bench.add_argument(
        "--budget",
        type=_positive(float),
        default=1.0,
        metavar="SECONDS",
        help="of samples, for each case in each process (default: 1)",
    )
    bench.add_argument(
        "--repeat",
        type=_positive(int),
        default=3,
        metavar="N",
        help="processes for each case: times vary most between these (default: 3)",
    )
    bench.add_argument(
        "--timeout",
        type=_positive(float),
        default=600.0,
        metavar="SECONDS",
        help="that one process may take (default: 600)",
    )
    bench.set_defaults(command=_bench)


def _add_diff(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    diff = commands.add_parser("diff", help="what got worse between two runs", description=_DIFF)
    diff.add_argument("before", help="a file of nbcompile bench --save")
    diff.add_argument("after", help="a later one")
    diff.add_argument(
        "--format",
        choices=("text", "json", "markdown", "github"),
        default="text",
        help="github: annotations in a workflow's log (default: text)",
    )
    diff.add_argument(
        "--fail-on",
        type=_kinds,
        default="all",
        metavar="KINDS",
        help="kinds of regression that make the exit status 1, between commas: "
        f"{', '.join(KINDS)}; all or none (default: all)",
    )
    diff.add_argument(
        "--threshold",
        type=_positive(float),
        default=0.05,
        metavar="SHARE",
        help="a call slower by less counts as the same (default: 0.05)",
    )
    diff.add_argument(
        "--compile-threshold",
        type=_positive(float),
        default=0.25,
        metavar="SHARE",
        help="the same of compiling (default: 0.25)",
    )
    diff.set_defaults(command=_diff)


def _add_show(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    shows = commands.add_parser("show", help="print a saved record", description=_SHOW)
    shows.add_argument("file", help="a .json, .html or .ipynb file")
    shows.add_argument(
        "--only", type=_parts, default=(), metavar="PARTS", help=f"between commas: {', '.join(PARTS)}"
    )
    shows.add_argument("--number", type=_positive(int), metavar="N", help="of several records this one")
    shows.add_argument(
        "--html", metavar="FILE", help="write them as a page with the explorer, and print nothing"
    )
    shows.set_defaults(command=_show)


def _show(parsed: argparse.Namespace) -> int:
    from nbcompile.view import to_page, to_text
    from nbcompile.view.coloured import coloured, has_colours
    from nbcompile.view.saved import read_saved

    records = read_saved(parsed.file)
    if parsed.number is not None:
        if parsed.number > len(records):
            raise OptionError(f"--number {parsed.number}: {parsed.file} holds {len(records)}.")
        records = [records[parsed.number - 1]]
    if parsed.html:
        _write(parsed.html, to_page(records, Path(parsed.file).name if records[1:] else ""))
        return 0
    in_colours = has_colours(sys.stdout, os.environ)
    for number, record in enumerate(records, 1):
        if records[1:]:
            print(f"{chr(10) if number > 1 else ''}[{number}]")
        text = to_text(record, parsed.only)
        print(coloured(text) if in_colours else text, end="")
    return 0


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise NbcompileError(f"{file} cannot be written: {error.strerror}.") from error


def _add_open(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    opens = commands.add_parser("open", help="what TORCH_TRACE wrote on a job", description=_OPEN)
    opens.add_argument("path", help="the folder, or one of its files")
    opens.add_argument("--rank", metavar="N", help="of many ranks this one")
    opens.add_argument("--only", default="", metavar="IDS", help="compilations in the page, e.g. 0/0,2/1")
    opens.add_argument("--html", metavar="FILE", help="write a page with the explorer of each compilation")
    opens.set_defaults(command=_open)


def _open(parsed: argparse.Namespace) -> int:
    from nbcompile.traces.opening import open as open_trace
    from nbcompile.traces.page import to_page
    from nbcompile.traces.trace_set import TraceSet

    traces = open_trace(parsed.path, progress=lambda text: print(text, file=sys.stderr))
    if parsed.rank is not None:
        if not isinstance(traces, TraceSet):
            raise OptionError(f"--rank {parsed.rank}: there is one file only.")
        traces = traces[parsed.rank]
    print(traces, end="")
    if parsed.html:
        page = to_page(traces, [name for name in parsed.only.split(",") if name])
        _write(parsed.html, page)
    return 0


def _add_class(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sheet = commands.add_parser("class", help="how far a class is with the exercises", description=_CLASS)
    sheet.add_argument("folder", help="that participants named in NBCOMPILE_CLASS_FOLDER")
    sheet.add_argument("--title", default="", help="what stands above it (default: the folder's name)")
    sheet.add_argument("--only", default="", metavar="NUMBERS", help="notebooks between commas, e.g. 03,06")
    sheet.add_argument("--html", metavar="FILE", help="write it as a page, and print nothing")
    sheet.set_defaults(command=_class)


def _class(parsed: argparse.Namespace) -> int:
    from nbcompile.workshop.progress.sheet import class_sheet

    only = [number for number in parsed.only.split(",") if number]
    sheet = class_sheet(parsed.folder, title=parsed.title, only=only)
    if parsed.html:
        _write(parsed.html, sheet.to_page())
    else:
        print(sheet, end="")
    return 0


def _bench(parsed: argparse.Namespace) -> int:
    from nbcompile.backends import registry
    from nbcompile.bench.regressions.bench import run_suite
    from nbcompile.bench.regressions.report import bench_text
    from nbcompile.bench.regressions.suite import SuiteSettings
    from nbcompile.options import Options

    registry.check(parsed.backend)
    if parsed.backend == "nbcompile":
        Options.from_mapping(dict(parsed.option), mode=parsed.mode)
    elif parsed.option:
        raise OptionError(f"-o is an option of nbcompile, and this is --backend {parsed.backend}.")
    if parsed.save and not Path(parsed.save).resolve().parent.is_dir():
        raise NbcompileError(f"--save {parsed.save}: there is no such folder.")
    settings = SuiteSettings(
        parsed.backend,
        parsed.mode,
        dict(parsed.option),
        parsed.threads,
        parsed.budget,
        parsed.repeat,
        parsed.only,
        parsed.timeout,
    )
    bench = run_suite(parsed.suite, settings, lambda text: print(text, file=sys.stderr))
    if parsed.save:
        Path(parsed.save).write_text(bench.to_json(), encoding="utf-8")
    print(bench_text(bench), end="")
    return 1 if any(case.error for case in bench.cases) else 0


def _diff(parsed: argparse.Namespace) -> int:
    from nbcompile.bench.regressions.bench import SuiteRun
    from nbcompile.bench.regressions.findings import compare_benches
    from nbcompile.bench.regressions.report import FORMATS, failing

    findings = compare_benches(
        SuiteRun.read(parsed.before),
        SuiteRun.read(parsed.after),
        threshold=parsed.threshold,
        compile_threshold=parsed.compile_threshold,
    )
    print(FORMATS[parsed.format](findings, parsed.fail_on), end="")
    return 1 if failing(findings, parsed.fail_on) else 0


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not more than 0")
        return value

    number.__name__ = "number"
    return number


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"wants name=value, got {text!r}")
    return name, value


def _parts(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(PARTS)}")
    return names


def _kinds(text: str) -> frozenset[str]:
    from nbcompile.bench.regressions.report import kinds

    try:
        return kinds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
