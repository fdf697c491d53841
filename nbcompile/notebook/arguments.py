"""The options of ``%%compile`` as one frozen value; their parser is IPython's ``magic_arguments``."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from IPython.core import magic_arguments
from IPython.core.error import UsageError

from nbcompile.backends import registry
from nbcompile.backends.browse import list_mode_options, list_options
from nbcompile.bench.doctor.switches import BUDGET
from nbcompile.bench.export.fresh import Package
from nbcompile.bench.export.program import DynamicDim, parse_dim
from nbcompile.bench.measure.code_objects import names_bound
from nbcompile.errors import OptionError
from nbcompile.notebook.usage import DynamicAction, check_kept, check_timed, no_expression, refuse_ranks
from nbcompile.options import MODES, PEER_MODES, Options
from nbcompile.record.ranks import PARALLELS, Parallel
from nbcompile.targets import CHIPS
from nbcompile.view.facts.parts import PARTS

TARGETS = ("auto", "cpu", *CHIPS)
INTERPRETED = "cuda:90"
"""The chip whose kernels ``--interpret`` runs where none is named."""

DTYPES = ("float32", "bfloat16", "float16", "float64")
"""Types that a program's arguments can be given, on copies."""

F = TypeVar("F", bound=Callable[..., Any])
# IPython's own are not typed.
argument: Callable[..., Callable[[Any], Any]] = magic_arguments.argument
with_arguments: Callable[[F], F] = cast(Any, magic_arguments.magic_arguments)()


@dataclass(frozen=True)
class CellOptions:
    """What one ``%%compile`` line asks for, defaults filled in. ``dynamic`` is torch.compile's; ``options``
    are ``-o`` pairs as typed; ``bench_seconds`` is what timing may take in all, ``cold`` also times a compile
    with empty caches. ``modes``, ``dtypes`` and ``sizes`` are those of a sweep, as given: ``mode`` is the
    first of ``modes``. ``doctor``: seconds that it has; 0: it is not asked."""

    backend: str = "nbcompile"
    mode: str = "default"
    fullgraph: bool = False
    optimizer: bool = False
    dynamic: bool | None = None
    options: tuple[tuple[str, str], ...] = ()
    train: bool = False
    compare: tuple[str, ...] = ("eager", "nbcompile", "inductor")
    bench: bool = True
    bench_seconds: float = 5.0
    cold: bool = True
    show: tuple[str, ...] = ()
    save: str = ""
    into: str = ""
    live: bool = False
    disable: bool = False
    name: str = ""
    recompile_limit: int | None = None
    mode_diff: tuple[str, ...] = ()
    ranks: int = 0
    parallel: Parallel = "ddp"
    split: tuple[str, ...] = ()
    export: str = ""
    dynamic_dims: tuple[tuple[str, int, DynamicDim], ...] = ()
    package: Package = "pt2"
    modes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    sizes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    sweep_into: str = ""
    doctor: float = 0.0
    check: bool = False
    watch: bool = False

    @property
    def sweeps(self) -> bool:
        """Whether the line asks for more than one point: several modes, or types or sizes."""
        return len(self.modes) > 1 or bool(self.dtypes or self.sizes)

    @property
    def mapping(self) -> dict[str, Any]:
        """``options`` as ``torch.compile(options=...)`` takes them."""
        return dict(self.options)


def options_of_magic(function: F) -> F:
    """Decorate a magic function with every option. Goes below ``@magic_arguments()``."""
    for decorate in reversed([*_of_compiling(), *_of_examining(), *_of_showing()]):
        function = decorate(function)
    return function


def _of_compiling() -> list[Callable[[Any], Any]]:
    return [
        argument("-h", "--help", action="store_true", help="show this text"),
        argument("--backend", help="a compiler (nbcompile, inductor, onnxrt …) or a function by its name"),
        argument("--mode", type=_modes, metavar="MODE,MODE",
                 help=f"torch.compile mode; several: a sweep of them. There are {', '.join(MODES)}, and "
                      "lite, which only Inductor has"),
        argument("--mode-diff", metavar="MODE,MODE",
                 help="also compile in these modes, and show what each changes for this cell"),
        argument("--fullgraph", action="store_true", help="an error, not a graph break"),
        argument("--optimizer", action="store_true", help="compile the step() of optimizers too"),
        argument("--dynamic", dest="dynamic", action=DynamicAction, nargs=0, help="sizes are symbolic"),
        argument("--no-dynamic", dest="dynamic", action=DynamicAction, nargs=0, help="sizes are constants"),
        argument("--disable", action="store_true", help="do not compile: torch.compile(disable=True)"),
        argument("--name", metavar="NAME", help="what the record calls what is compiled"),
        argument("--recompile-limit", type=int, metavar="N", help="graphs of one function, then eager"),
        argument("-o", dest="option", action="append", default=[], metavar="NAME=VALUE",
                 help="an option of the backend; may be repeated"),
        argument("--list-options", nargs="?", const="", metavar="PATTERN",
                 help="of %%compile: the options of --backend, those like PATTERN; compiles nothing"),
    ]  # fmt: skip


def _of_examining() -> list[Callable[[Any], Any]]:
    return [
        argument("--runs", action="store_true", help="of %%compile: a table of what was compiled here"),
        argument("--cache", action="store_true", help="of %%compile: where kernels are kept, and how many"),
        argument("--train", action="store_true", help="measure forward and backward together"),
        argument("--compare", metavar="A,B",
                 help="whom to time beside the cell's own backend, e.g. eager,inductor"),
        argument("--dtype", type=_dtypes, metavar="DTYPE,DTYPE",
                 help=f"a sweep over the type of the arguments, on copies: {', '.join(DTYPES)}"),
        argument("--size", action="append", type=_size, default=[], metavar="NAME=1,8,64",
                 help="a sweep over an extent of the arguments, on copies; NAME is a variable that holds it, "
                      "x[0], or the extent itself; may be repeated"),
        argument("--doctor", nargs="?", type=float, const=BUDGET, metavar="SECONDS",
                 help=f"try what could make this faster, each in a process of its own ({BUDGET:.0f} s)"),
        argument("--check", action="store_true",
                 help="find the first stage and operator that is wrong or raises, and its smallest cell"),
        argument("--watch", action="store_true",
                 help="keep Dynamo's walk through the bytecode, instruction by instruction"),
        argument("--no-bench", action="store_true",
                 help="do not time the cell; a sweep, --mode-diff and --doctor time what they compare"),
    ]  # fmt: skip


def _of_showing() -> list[Callable[[Any], Any]]:
    return [
        argument("--show", metavar="PART,PART", help=f"which parts to show: {', '.join(PARTS)}"),
        argument("--no-fuse", action="append", nargs="?", const="", metavar="A:B",
                 help="one kernel a loop; with A:B, only keep that pair of loops apart"),
        argument("--target", choices=TARGETS, metavar="CHIP",
                 help=f"the chip to make code for, here or not: {', '.join(TARGETS)}"),
        argument("--interpret", action="store_true",
                 help="run the Triton kernels in Triton's interpreter and compare with eager"),
        argument("--deterministic", action="store_true", help="no atomics that change a result's last bits"),
        argument("--autotune-seconds", type=float, metavar="SECONDS",
                 help="how long max-autotune may measure candidates for one graph"),
        argument("--live", action="store_true", help="show the explorer as a widget"),
        argument("--save", metavar="FILE", help="write the record (.json) or the page (.html)"),
        argument("--export", metavar="FILE.pt2", help="of a call f(x): save f as a file, and try that"),
        argument("--dynamic-dim", action="append", default=[], metavar="X[0]=NAME",
                 help="with --export: a size that may change, e.g. x[0]=batch or x[0]=batch:2:64"),
        argument("--package", choices=("pt2", "aoti"), default="pt2",
                 help="with --export: torch.export's own file, or one compiled by AOTInductor"),
        argument("--into", metavar="NAME", help="bind the Compilation to this name"),
        argument("--ranks", type=int, metavar="N", help="run the cell on N ranks, engines of ipyparallel"),
        argument("--parallel", choices=PARALLELS, help="with --ranks, how modules are distributed (ddp)"),
        argument("--split", metavar="X,Y", help="with --ranks, tensors of which each rank gets its rows"),
        argument("--ranks-stop", action="store_true", help="%%compile --ranks-stop: end the ranks"),
        argument("--sweep-into", metavar="NAME", help="bind the Sweep to this name"),
    ]  # fmt: skip


def cell_options(parsed: argparse.Namespace, defaults: CellOptions) -> CellOptions:
    """Check what was parsed. UsageError, one line, for a value that cannot be meant."""
    backend = (parsed.backend or defaults.backend).replace(":", ".")
    pairs = _pairs(parsed, backend)
    mode = parsed.mode[0] if parsed.mode else _default_mode(backend, defaults.mode)
    others = _other_modes(parsed, mode)
    compare = _with_own(backend, _names(parsed.compare) if parsed.compare else defaults.compare)
    _check_backends(parsed, backend, compare)
    try:
        _check_options(backend, dict(pairs), (mode, *others))
    except OptionError as error:
        raise UsageError(str(error)) from error
    show = _names(parsed.show) if parsed.show else defaults.show
    for part in show:
        if part not in PARTS:
            raise UsageError(f"--show has no part {part!r}: choose from {', '.join(PARTS)}")
    check_kept(parsed)
    texts = ("save", "into", "name", "export", "sweep_into")
    plain: dict[str, Any] = {name: getattr(parsed, name) or "" for name in texts}
    made = dataclasses.replace(
        defaults,
        **plain,
        train=parsed.train,
        live=parsed.live,
        disable=parsed.disable,
        recompile_limit=parsed.recompile_limit,
        package=parsed.package,
        backend=backend,
        mode=mode,
        fullgraph=parsed.fullgraph or defaults.fullgraph,
        optimizer=parsed.optimizer or defaults.optimizer,
        dynamic=defaults.dynamic if parsed.dynamic is None else parsed.dynamic,
        options=tuple(pairs),
        compare=compare,
        bench=defaults.bench and not (parsed.no_bench or parsed.disable or parsed.doctor or parsed.check),
        doctor=_doctor(parsed),
        check=parsed.check,
        watch=parsed.watch,
        show=show,
        mode_diff=others,
        ranks=_ranks(parsed),
        parallel=parsed.parallel or "ddp",
        split=_names(parsed.split) if parsed.split else (),
        dynamic_dims=_dynamic_dims(parsed),
        modes=parsed.mode or (),
        dtypes=parsed.dtype or (),
        sizes=tuple(parsed.size),
    )
    _check_sweep(made)
    check_timed(parsed, made.sweeps)
    compared = (made.bench or made.sweeps) and not parsed.compare
    if compared:  # the setting, which a cell that compares with nobody does not need
        _check_contestants(compare, "%config NbCompile.compare: ")
    return made


def _check_backends(parsed: argparse.Namespace, backend: str, compare: tuple[str, ...]) -> None:
    _check_contestants((backend,))
    if parsed.compare:
        _check_contestants(compare)
        twice = next((name for place, name in enumerate(compare) if name in compare[:place]), None)
        if twice is not None:
            raise UsageError(f"--compare names {twice} twice")


def _check_contestants(names: tuple[str, ...], where: str = "") -> None:
    for name in names:
        try:
            registry.check(name.partition(":")[0])
        except OptionError as error:
            raise UsageError(f"{where}{error}") from error


def refuse_bound(options: CellOptions, tree: ast.Module) -> None:
    """UsageError where the line would bind a name to what it found that the cell itself binds: the value of
    the cell's would be lost."""
    extras = {"modes": options.mode_diff, "check": options.check, "doctor": options.doctor}
    own = [options.into, *(f"{options.into}_{name}" for name, given in extras.items() if given)]
    flags = dict.fromkeys(own, "--into") if options.into else {}
    flags |= {options.sweep_into: "--sweep-into"} if options.sweep_into else {}
    bound = names_bound(compile(tree, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)) if flags else ()
    for name, flag in flags.items():
        if name in bound:
            raise UsageError(f"{flag} would overwrite {name}, which the cell binds itself: take another name")


def _doctor(parsed: argparse.Namespace) -> float:
    """Its seconds; it times all there is to time itself, so the cell is not timed before."""
    if parsed.doctor is None:
        return 0.0
    if not parsed.doctor > 0:
        raise UsageError(f"--doctor wants a number of seconds, got {parsed.doctor:g}")
    if parsed.disable or parsed.ranks or parsed.target or parsed.interpret or parsed.export:
        others = "--disable, --ranks, --target, --interpret or --export"
        raise UsageError(f"--doctor measures compiled code on this machine: not with {others}")
    return float(parsed.doctor)


def _with_own(backend: str, contestants: tuple[str, ...]) -> tuple[str, ...]:
    """The contestants with the cell's own backend, which is timed and checked whoever it is held against."""
    if backend in {name.partition(":")[0] for name in contestants}:
        return contestants
    first = 1 if contestants[:1] == ("eager",) else 0
    return (*contestants[:first], backend, *contestants[first:])


def _pairs(parsed: argparse.Namespace, backend: str) -> list[tuple[str, str]]:
    """Options of the backend, as ``-o`` and the flags that are short for one give them."""
    pairs = []
    for text in parsed.option:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(f"-o wants name=value, got {text!r}")
        pairs.append((name, value))
    for text in parsed.no_fuse or ():
        pairs.append(("no_fuse", text) if text else ("fuse", "false"))
    return _joined([*pairs, *_of_flags(parsed, backend, dict(pairs))])


def _check_sweep(options: CellOptions) -> None:
    if options.sweep_into and not options.sweeps:
        raise UsageError("--sweep-into wants a sweep: give several modes, or --dtype or --size")
    names = [name for name, _ in options.sizes]
    if len(set(names)) < len(names):
        raise UsageError("--size names the same extent twice: write its values after one name")
    with_mode = next((name for name in options.compare if ":" in name), None)
    if options.sweeps and with_mode is not None:
        raise UsageError(f"--compare {with_mode}: in a sweep --mode says the modes")


def _modes(text: str) -> tuple[str, ...]:
    names = _names(text)
    for name in names or (text,):
        if name not in PEER_MODES:
            raise argparse.ArgumentTypeError(
                f"invalid choice: {name!r} (choose from {', '.join(PEER_MODES)})"
            )
    return tuple(dict.fromkeys(names))


def _dtypes(text: str) -> tuple[str, ...]:
    names = tuple(name.removeprefix("torch.") for name in _names(text))
    for name in names or (text,):
        if name not in DTYPES:
            raise argparse.ArgumentTypeError(f"invalid choice: {name!r} (choose from {', '.join(DTYPES)})")
    return tuple(dict.fromkeys(names))


def _size(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, values = text.strip("'\"").partition("=")
    found = [int(value) for value in _names(values) if value.isdigit()]
    if not (equals and found and all(found)) or len(found) < len(_names(values)):
        raise argparse.ArgumentTypeError(f"wants NAME=1,8,64, got {text!r}")
    if not re.fullmatch(r"\d+|[^\W\d]\w*(\[\d+\])?", name):
        raise argparse.ArgumentTypeError(f"{name!r} is no variable, no x[0] and no extent")
    return name, tuple(dict.fromkeys(found))


def _dynamic_dims(parsed: argparse.Namespace) -> tuple[tuple[str, int, DynamicDim], ...]:
    """What ``--dynamic-dim`` names, and what goes with ``--export``."""
    try:
        dims = tuple(parse_dim(text) for text in parsed.dynamic_dim)
    except OptionError as error:
        raise UsageError(f"--dynamic-dim {error}") from error
    if not parsed.export and (dims or parsed.package != "pt2"):
        raise UsageError("--dynamic-dim and --package go with --export FILE.pt2")
    if parsed.export and (parsed.save or parsed.into or parsed.live):
        raise UsageError("--export has a report for its result; --save, --into and --live are of a record")
    return dims


def _default_mode(backend: str, mode: str) -> str:
    """The configured mode, where the backend has it: it was not asked for in this cell."""
    known = registry.backends().get(backend)
    return mode if known is None or mode in known.modes else "default"


def _check_options(backend: str, pairs: dict[str, str], modes: tuple[str, ...]) -> None:
    if backend == "nbcompile":
        for mode in modes:
            if mode in PEER_MODES and mode not in MODES:
                raise UsageError(f"--mode {mode} is Inductor's alone: --backend inductor --mode {mode}")
            Options.from_mapping(pairs, mode=mode)
        return
    if backend not in registry.backends():
        return
    for asked in modes:
        list_mode_options(asked, backend)
    if pairs:
        list_options(backend).check(name.replace("-", "_") for name in pairs)


def _other_modes(parsed: argparse.Namespace, mode: str) -> tuple[str, ...]:
    """``--mode-diff``, and the checks of what has no other place."""
    if parsed.list_options is not None:
        raise UsageError("--list-options is for %compile, with one %, and takes no expression")
    if parsed.runs:
        raise UsageError("--runs is for %compile, with one %, and takes no expression")
    if parsed.cache:
        raise UsageError("--cache is for %compile, with one %, and takes no expression")
    if parsed.recompile_limit is not None and parsed.recompile_limit < 1:
        raise UsageError("--recompile-limit wants a number from 1 on")
    modes = _names(parsed.mode_diff) if parsed.mode_diff else ()
    if modes and (parsed.disable or parsed.ranks):
        raise UsageError("--mode-diff compiles in this process: it goes with neither --disable nor --ranks")
    for other in modes:
        if other == mode:
            raise UsageError(f"--mode-diff {other}: that is the mode of this cell already")
    return modes


def _ranks(parsed: argparse.Namespace) -> int:
    if parsed.ranks is None:
        for flag in ("parallel", "split"):
            if getattr(parsed, flag):
                raise UsageError(f"--{flag} goes with --ranks, e.g. --ranks 2")
        return 0
    if parsed.ranks < 1:
        raise UsageError(f"--ranks wants a number of 1 or more, got {parsed.ranks}")
    if importlib.util.find_spec("ipyparallel") is None:
        raise UsageError("--ranks needs ipyparallel, which is not installed. Run: pip install ipyparallel")
    return int(parsed.ranks)


def _of_flags(parsed: argparse.Namespace, backend: str, pairs: dict[str, str]) -> list[tuple[str, str]]:
    """The options of nbcompile that have flags of their own, as ``-o`` would give them."""
    given = []
    if parsed.target:
        given.append(("target", parsed.target))
    if parsed.interpret:
        given.append(("interpret", "true"))
        target = parsed.target or pairs.get("target", "auto")
        if target == "cpu":
            raise UsageError("--interpret runs kernels for a GPU; the CPU's are C")
        if target == "auto":
            given.append(("target", INTERPRETED))
    if parsed.deterministic:
        given.append(("deterministic", "true"))
    if parsed.autotune_seconds is not None:
        given.append(("autotune_seconds", str(parsed.autotune_seconds)))
    if given and backend != "nbcompile":
        flag = given[0][0].replace("_", "-")
        raise UsageError(f"--{flag} is an option of nbcompile, and this is --backend {backend}")
    return given


def split_expression(line: str, parse: Callable[[str], argparse.Namespace]) -> tuple[argparse.Namespace, str]:
    """The line of ``%compile OPTIONS EXPRESSION`` as parsed options and the expression, untouched.

    Shell-like splitting would eat the expression's quotes, so it is found as the first rest of the line
    that is Python while everything before it parses. UsageError if there is none.
    """
    for place in [0, *(found.end() for found in re.finditer(r"\s+", line)), len(line)]:
        rest = line[place:].strip()
        if rest.startswith("-") or not _is_expression(rest):
            continue
        try:
            parsed = parse(line[:place])
        except UsageError:
            continue
        refuse_ranks(parsed)
        return parsed, rest
    try:
        return parse(line), ""
    except UsageError as error:
        rest = _rest_of(line, parse)
        raise (no_expression(rest) if rest else error) from None


def _rest_of(line: str, parse: Callable[[str], argparse.Namespace]) -> str:
    """What follows the options of a line, as far as these can be told from it."""
    for place in [0, *(found.end() for found in re.finditer(r"\s+", line))]:
        rest = line[place:].strip()
        if rest and not rest.startswith("-"):
            try:
                parse(line[:place])
            except UsageError:
                continue
            return rest
    return ""


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True


def _joined(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Repeated pairs to keep apart, or to fuse, become one option."""
    for option in ("no_fuse", "force_fuse"):
        values = [value for name, value in pairs if name == option]
        if values:
            pairs = [*(pair for pair in pairs if pair[0] != option), (option, ",".join(values))]
    return pairs


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
