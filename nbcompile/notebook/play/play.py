"""What a live kernel answers to the explorer: which changes can be made, and what comes of one.

:class:`Plays` remembers the last programs that were compiled here (their code, names and options, see
:mod:`nbcompile.notebook.play.programs`) by the id of their record. A change compiles the program again with
other settings, on values as they are now, and measures it. All state is put back, and nothing is printed.

Requests, as :mod:`nbcompile.notebook.play.protocol` receives them (``record`` is a record's id; all is
JSON)::

    controls {record}          {live, reason, backend, backends, target, targets, mode, modes, dynamic, dtype,
                                dtypes, sizes: [{name, extent, where, low, high}], fuse, no_fuse, force_fuse,
                                edited}
    change {record, backend?, target?, mode?, dynamic?, dtype?, sizes?: {name: extent}, fuse?, no_fuse?,
            force_fuse?, bench?}
                               {payload}: what is not named stays, but for edits, which are left out
    edit {record, kernel, language, source}
                               {agrees, outputs: [{name, error, eager_error, max_difference, agrees,
                                reason}], original, edited: seconds a call of the kernel alone, message,
                                payload}
    earlier {record}           {payload}: this record, of a run before, as it was
    script {record, kernel}    {name, text}
    assembly {record, kernel}  {text, lines: [[line of text, line of the kernel's C text], ...], compiler}
    charts {}                  {script}

Pairs are ``[producer, consumer]``, names of loops. ``no_fuse`` and ``force_fuse`` are whole lists: they
replace those of the record, and a pair given in one leaves the other.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from nbcompile.backends import registry
from nbcompile.errors import OptionError, PlayError, in_one_line
from nbcompile.notebook.arguments import DTYPES, TARGETS, CellOptions
from nbcompile.notebook.cell.compiling import settings_of
from nbcompile.notebook.cell.measuring import Told, measure_parts
from nbcompile.notebook.cell.timed_part import part_name
from nbcompile.notebook.play.programs import AGAIN, PlayedProgram, ProgramPiece
from nbcompile.notebook.play.running import (
    PlaySettings,
    Tell,
    Variant,
    current,
    run_compiled,
    step_of,
    untouched,
)
from nbcompile.notebook.play.variations import dtype_of, sizes_of
from nbcompile.notebook.runs import SessionRuns
from nbcompile.options import MODES, Options
from nbcompile.record.compilation import Compilation
from nbcompile.view import payload

PROGRAMS = 512
"""Kept of a session, the last used: code and names, some kilobytes each."""
_VARIANTS = 2048
_BENCH_SECONDS = 0.5  # of timing


class Plays:
    """The last programs compiled in this session, by the id of each of their records."""

    def __init__(self) -> None:
        self.runs = SessionRuns()
        self._variants: OrderedDict[str, Variant] = OrderedDict()

    def remember(self, record: str, program: PlayedProgram, settings: PlaySettings | None = None) -> None:
        """Make the record with this id live. The :data:`PROGRAMS` used last are kept."""
        self._variants[record] = Variant(program, settings or PlaySettings(program.options))
        self._variants.move_to_end(record)
        recent = list(dict.fromkeys(id(item.program) for item in reversed(self._variants.values())))
        for old, item in list(self._variants.items()):
            if id(item.program) in recent[PROGRAMS:] or len(self._variants) > _VARIANTS:
                del self._variants[old]

    def variant(self, params: Mapping[str, Any]) -> Variant:
        """The variant that a request names as ``record``. PlayError if it is not known here."""
        found = self._variants.get(str(params.get("record")))
        if found is None:
            raise PlayError("this kernel does not hold that compilation.", advice=AGAIN)
        for name in [name for name, item in self._variants.items() if item.program is found.program]:
            self._variants.move_to_end(name)  # all of a program's records age together
        return found

    # -- requests -----------------------------------------------------------------------------------

    def answer(self, method: str, params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """The value of one request. Raises NbcompileError for what cannot be done."""
        methods = {
            "controls": self.controls,
            "change": self.change,
            "edit": self.edit,
            "earlier": self.earlier,
            "script": self.script,
            "assembly": self.assembly,
        }
        if method not in methods:
            raise PlayError(f"there is no method {method!r}.", advice=f"There are {', '.join(methods)}.")
        return methods[method](params, tell)

    def controls(self, params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """What can be changed about a record, and how it is now."""
        try:
            variant = self.variant(params)
            pieces = variant.program.pieces()
        except PlayError as error:
            return {"live": False, "reason": str(error)}
        settings = variant.settings
        options = settings.options
        ours = _our_options(options)
        return {
            "live": True,
            "reason": "",
            "backend": options.backend,
            "backends": list(registry.names()),
            "target": ours.target,
            "targets": list(dict.fromkeys((*TARGETS, ours.target))),
            "mode": options.mode,
            "modes": list(_modes(options.backend)),
            "dynamic": options.dynamic,
            "dtype": settings.dtype or dtype_of(pieces),
            "dtypes": list(DTYPES),
            "sizes": [
                dataclasses.asdict(size) | {"where": list(size.where)}
                for size in sizes_of(pieces, dict(settings.sizes))
            ],
            "fuse": ours.fuse,
            "no_fuse": [list(pair) for pair in ours.no_fuse],
            "force_fuse": [list(pair) for pair in ours.force_fuse],
            "edited": [kernel for kernel, _ in settings.edits],
        }

    def change(self, params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """Compile and measure with other settings; those not named stay as they are for the record."""
        variant = self.variant(params)
        settings = changed(variant.settings, variant.program.options, params)
        tell("reading the values", 0, 4)
        pieces = current(variant.program, settings)
        if settings.on_copies:
            _try_eager(pieces, variant.program.train, settings)
        bench = bool(params.get("bench", True))
        options = dataclasses.replace(
            settings.options,
            bench=bench,
            bench_seconds=min(settings.options.bench_seconds, _BENCH_SECONDS),
            cold=False,
            compare=tuple(dict.fromkeys(("eager", settings.options.backend))),
        )
        tell("compiling", 1, 4)
        with untouched(pieces):
            recorder = settings_of(options).recorder(
                variant.program.cell, lambda text: tell(text, 1, 4), variant.program.name
            )
            run_compiled(pieces, options, recorder, train=variant.program.train)
            part = variant.program.timed_part
            compilation = dataclasses.replace(recorder.compilation(), timed_part=part)
            if compilation.execution != "eager":
                compilation = measure_parts(
                    pieces,
                    compilation,
                    options,
                    Told(lambda text: tell(text, 2, 4)),
                    train=variant.program.train,
                    what=part_name(part),
                )
        compilation = self.keep(variant.program, settings, compilation)
        tell("drawing", 3, 4)
        return {"payload": payload(compilation)}

    def edit(self, params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """Run with one kernel's text replaced: compared with eager, timed beside the original."""
        from nbcompile.notebook.play.edits import run_edit

        variant = self.variant(params)
        found = run_edit(variant, params, tell)
        compilation = self.keep(variant.program, found.settings, found.compilation)
        fields = ("output", "error", "eager_error", "max_difference", "agrees", "reason")
        rows = [{field: getattr(row, field) for field in fields} for row in found.rows]
        return {
            "agrees": found.agrees,
            "outputs": [{"name": row.pop("output"), **row} for row in rows],
            "original": list(found.original),
            "edited": list(found.edited),
            "message": found.message,
            "payload": payload(compilation),
        }

    def earlier(self, params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """A record of this session as it was; nothing is compiled."""
        return {"payload": payload(self.runs.record(str(params.get("record"))))}

    def script(self, params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """A stand-alone script that runs one kernel."""
        from nbcompile.notebook.play.edits import run_script

        return run_script(self.variant(params), params, tell)

    def assembly(self, params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """What the C compiler makes of one kernel."""
        from nbcompile.notebook.play.edits import run_assembly

        return run_assembly(self.variant(params), params, tell)

    def keep(self, program: PlayedProgram, settings: PlaySettings, compilation: Compilation) -> Compilation:
        """Remember a variant, under an id that says all of its settings, which the record is given."""
        notes = settings_notes(settings)
        identity = compilation.id
        if notes or settings.options.dynamic is not None or settings.edits:
            what = json.dumps([identity, dataclasses.asdict(settings)], sort_keys=True, default=str)
            identity = hashlib.sha256(what.encode()).hexdigest()[:12]
        compilation = dataclasses.replace(compilation, id=identity, notes=(*compilation.notes, *notes))
        self.remember(identity, program, settings)
        return compilation


SESSION = Plays()
"""What was compiled in this process."""


def _modes(backend: str) -> tuple[str, ...]:
    known = registry.backends().get(backend)
    return known.modes if known is not None else ("default",)


# -- settings ---------------------------------------------------------------------------------------


def changed(settings: PlaySettings, base: CellOptions, params: Mapping[str, Any]) -> PlaySettings:
    """``settings`` with what a request names. OptionError for a value that cannot be meant."""
    options = settings.options
    backend = str(params.get("backend") or options.backend)
    # A cell may name anything that can be imported; a page names what it was told of, or what the cell did.
    if backend not in (options.backend, base.backend, *registry.names()):
        raise OptionError(
            f"backend {backend!r} is unknown.", advice=f"There are {', '.join(registry.names())}."
        )
    registry.check(backend)
    pairs = dict(options.options if backend == options.backend else _pairs_for(backend, base))
    mode = str(params.get("mode") or options.mode)
    if mode not in MODES:
        raise OptionError(f"mode {mode!r} is unknown.", advice=f"There are {', '.join(MODES)}.")
    mode = mode if mode in _modes(backend) else "default"
    dynamic = params.get("dynamic", options.dynamic)
    if dynamic not in (None, True, False):
        raise OptionError(f"dynamic={dynamic!r} wants true, false or null.")
    if backend == "nbcompile":
        _fusion(pairs, params)
        if params.get("target") is not None:
            pairs["target"] = str(params["target"])
        Options.from_mapping(pairs, mode=mode)
    sizes = dict(settings.sizes) | {
        _extent(name): _extent(new) for name, new in _mapping(params, "sizes").items()
    }
    dtype = settings.dtype if params.get("dtype") is None else str(params["dtype"])
    return PlaySettings(
        dataclasses.replace(
            options, backend=backend, mode=mode, dynamic=dynamic, options=tuple(pairs.items())
        ),
        "" if dtype == "mixed" else dtype,
        tuple(sorted((extent, new) for extent, new in sizes.items() if extent != new)),
    )


def settings_notes(settings: PlaySettings) -> list[str]:
    """What a variant has other than its program, for the record."""
    notes = [
        f"An extent of {old} was made {new}, contents repeated or cut off." for old, new in settings.sizes
    ]
    if settings.dtype:
        notes.append(f"Floating arguments and parameters were cast to {settings.dtype}.")
    return notes


def _fusion(pairs: dict[str, Any], params: Mapping[str, Any]) -> None:
    """Put the toggles of a request into options. A pair named in one list leaves the other."""
    if params.get("fuse") is not None:
        pairs["fuse"] = str(bool(params["fuse"])).lower()
    ours = Options.from_mapping({name: pairs[name] for name in ("no_fuse", "force_fuse") if name in pairs})
    found = {"no_fuse": ours.no_fuse, "force_fuse": ours.force_fuse}
    for name, other in (("no_fuse", "force_fuse"), ("force_fuse", "no_fuse")):
        if params.get(name) is None:
            continue
        items = params[name]
        if not isinstance(items, list | tuple):
            raise OptionError(f"{name} wants a list of pairs, got {items!r}.")
        found[name] = getattr(Options.from_mapping({name: items}), name)
        if params.get(other) is None:
            found[other] = tuple(pair for pair in found[other] if pair not in found[name])
    for name, chosen in found.items():
        pairs.pop(name, None)
        if chosen:
            pairs[name] = ",".join(":".join(pair) for pair in chosen)


def _our_options(options: CellOptions) -> Options:
    return Options.from_mapping(options.mapping if options.backend == "nbcompile" else None)


def _pairs_for(backend: str, base: CellOptions) -> tuple[tuple[str, str], ...]:
    return base.options if backend == base.backend else ()


def _mapping(params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = params.get(name) or {}
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} wants names with values, got {value!r}.")
    return value


def _extent(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise OptionError(f"an extent is a whole number, got {value!r}.") from error


def _try_eager(pieces: Sequence[ProgramPiece], train: bool, settings: PlaySettings) -> None:
    """PlayError where the program itself does not run with these arguments."""
    with untouched(pieces):
        try:
            step_of(pieces, train)()
        except Exception as error:
            why = in_one_line(error).rstrip(".")
            if settings.sizes:
                what = ", ".join(f"{old} cannot become {new}" for old, new in settings.sizes)
                raise PlayError(
                    f"{what}: the program itself then raises {why}.",
                    advice="This size is not free: a parameter or a constant goes with it.",
                ) from error
            raise PlayError(f"in {settings.dtype} the program itself raises {why}.") from error
