"""``nbcompile bench``: every case of a suite in processes of its own, and the file that keeps the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from nbcompile.bench.processes import ProcessEndedError, in_process
from nbcompile.bench.regressions.suite import SuiteSettings, chosen
from nbcompile.bench.regressions.worker import cases_of, run_case
from nbcompile.errors import RecordError, SuiteError
from nbcompile.record.compilation import Compilation, Measurement
from nbcompile.record.packed import first_of, json_text, pack, said, validator, values_of_file

SCHEMA = "nbcompile.bench/1"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

T = TypeVar("T")


@dataclass(frozen=True)
class CaseResult:
    """What became of one case: the record of its first process, the measurements of each, and the source
    files its lines are of (relative to the bench's root). ``error``: why there is no record."""

    name: str
    line: int = 0
    record: Compilation | None = None
    processes: tuple[tuple[Measurement, ...], ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class SuiteRun:
    """A saved run of a suite. ``suite`` is its file relative to ``root``, the folder it was run in."""

    suite: str
    root: str
    settings: SuiteSettings
    cases: tuple[CaseResult, ...]
    schema: str = SCHEMA

    def to_json(self) -> str:
        data = asdict(self)
        for row, case in zip(data["cases"], self.cases):
            row["record"] = pack(case.record.to_dict()) if case.record is not None else None
        return json_text(data)

    @classmethod
    def read(cls, file: str | Path) -> SuiteRun:
        """A file written by ``nbcompile bench``, or one record saved by itself as a bench of one case.
        RecordError if it is neither."""
        data = values_of_file(file)
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA:
            if isinstance(schema, str) and schema.startswith("nbcompile.bench/"):
                name = said(schema, 60)
                raise RecordError(f"{file} says {name}, this nbcompile reads {SCHEMA}: upgrade nbcompile.")
            return _of_record(Compilation.from_dict(data))
        return _read(data, str(file))


def _read(data: dict[str, Any], file: str) -> SuiteRun:
    from pydantic import ValidationError

    try:
        records = [case.pop("record", None) for case in data["cases"]]
        bench: SuiteRun = validator(SuiteRun).validate_python(data)
    except ValidationError as error:
        where, message = first_of(error)
        raise RecordError(f"{file}, field {where}: {message}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file} is damaged: {error!r}") from error
    cases = tuple(
        replace(case, record=Compilation.from_dict(record)) if record is not None else case
        for case, record in zip(bench.cases, records)
    )
    return replace(bench, cases=cases)


def _of_record(record: Compilation) -> SuiteRun:
    settings = SuiteSettings(record.backend, record.mode, threads=record.environment.threads)
    case = CaseResult("record", record=record, processes=(record.measurements,))
    return SuiteRun("", "", settings, (case,))


def run_suite(suite: str, settings: SuiteSettings, tell: Callable[[str], None]) -> SuiteRun:
    """Run every chosen case ``settings.repeat`` times, each in a new process, in rounds: what drifts on the
    machine meanwhile meets all of them. SuiteError if the suite cannot be loaded or nothing is chosen."""
    path, root = Path(suite).resolve(), Path.cwd()
    listed = _ask(settings, cases_of, str(path))
    if isinstance(listed, str):
        raise SuiteError(listed)
    if isinstance(listed, SuiteError):
        raise listed
    lines = dict(listed)
    names = chosen(list(lines), settings.only)
    if not names:
        raise SuiteError(f"--only {settings.only} picks no case.", advice=f"There are {', '.join(lines)}.")
    found: dict[str, CaseResult] = {name: CaseResult(name, lines[name]) for name in names}
    for process in range(settings.repeat):
        for name in names:
            if not found[name].error:
                tell(f"{name}, process {process + 1} of {settings.repeat}…")
                said = _ask(settings, run_case, str(path), str(root), name, settings)
                found[name] = _with(found[name], said)
    relative = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    return SuiteRun(relative, str(root), settings, tuple(found.values()))


def _with(case: CaseResult, said: tuple[Compilation, dict[str, str]] | str) -> CaseResult:
    """A case after one more process, which gave a record and its sources, or said why there is none."""
    if isinstance(said, str):
        return replace(case, error=said)
    record, sources = said
    first = case if case.record is not None else replace(case, record=record, sources=sources)
    return replace(first, processes=(*case.processes, record.measurements))


def _ask(settings: SuiteSettings, function: Callable[..., T], *arguments: Any) -> T | str:
    """What a new process answers, its threads pinned; if it died or took too long, how."""
    threads = dict.fromkeys(_THREADS, str(settings.threads))
    try:
        return in_process(function, *arguments, timeout=settings.timeout, environment=threads)
    except ProcessEndedError as error:
        return str(error) if error.timed_out else f"its process died: {error}"
