"""``nbcompile bench``: every case of a suite in processes of its own, and the file that keeps the results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nbcompile.bench.regressions.suite import chosen
from nbcompile.errors import RecordError, SuiteError
from nbcompile.record.compilation import Compilation, Measurement
from nbcompile.record.packed import pack

SCHEMA = "nbcompile.bench/1"
_PACKAGE = str(Path(__file__).parents[3])  # so that the processes find this very nbcompile
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Settings:
    """How a suite is run. ``budget``: seconds of samples of one case in one process; ``repeat``: processes a
    case; ``timeout``: seconds one process may take; ``only``: patterns of names between commas."""

    backend: str = "nbcompile"
    mode: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    budget: float = 1.0
    repeat: int = 3
    only: str = ""
    timeout: float = 600.0


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
class Bench:
    """A saved run of a suite. ``suite`` is its file relative to ``root``, the folder it was run in."""

    suite: str
    root: str
    settings: Settings
    cases: tuple[CaseResult, ...]
    schema: str = SCHEMA

    def to_json(self) -> str:
        data = asdict(self)
        for row, case in zip(data["cases"], self.cases):
            row["record"] = pack(case.record.to_dict()) if case.record is not None else None
        return json.dumps(data, ensure_ascii=False)

    @classmethod
    def read(cls, file: str | Path) -> Bench:
        """A file written by ``nbcompile bench``, or one record saved by itself as a bench of one case.
        RecordError if it is neither."""
        try:
            data = json.loads(Path(file).read_text(encoding="utf-8"))
        except OSError as error:
            raise RecordError(f"{file} cannot be read: {error.strerror}.") from error
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{file} is not JSON: {error}.") from error
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA:
            if isinstance(schema, str) and schema.startswith("nbcompile.bench/"):
                raise RecordError(f"{file} says {schema}, this nbcompile reads {SCHEMA}: upgrade nbcompile.")
            return _of_record(Compilation.from_dict(data))
        return _read(data, str(file))


def _read(data: dict[str, Any], file: str) -> Bench:
    from pydantic import TypeAdapter, ValidationError

    try:
        records = [case.pop("record", None) for case in data["cases"]]
        bench = TypeAdapter(Bench).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{file}, field {where}: {first['msg']}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file} is damaged: {error!r}") from error
    cases = tuple(
        CaseResult(
            case.name,
            case.line,
            Compilation.from_dict(record) if record is not None else None,
            case.processes,
            case.sources,
            case.error,
        )
        for case, record in zip(bench.cases, records)
    )
    return Bench(bench.suite, bench.root, bench.settings, cases)


def _of_record(record: Compilation) -> Bench:
    settings = Settings(record.backend, record.mode, threads=record.environment.threads)
    case = CaseResult("record", record=record, processes=(record.measurements,))
    return Bench("", "", settings, (case,))


def run_suite(suite: str, settings: Settings, tell: Callable[[str], None]) -> Bench:
    """Run every chosen case ``settings.repeat`` times, each in a new process, in rounds: what drifts on the
    machine meanwhile meets all of them. SuiteError if the suite cannot be loaded or nothing is chosen."""
    path, root = Path(suite).resolve(), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="nbcompile-bench-") as folder:
        listed = _ask({"suite": str(path), "root": str(root)}, settings, Path(folder))
        if "cases" not in listed:
            raise SuiteError(
                listed.get("suite_error") or listed["error"],
                line=listed.get("line"),
                advice=listed.get("advice", ""),
            )
        lines = {case["name"]: case["line"] for case in listed["cases"]}
        names = chosen(list(lines), settings.only)
        if not names:
            raise SuiteError(
                f"--only {settings.only} picks no case.", advice=f"There are {', '.join(lines)}."
            )
        found: dict[str, CaseResult] = {name: CaseResult(name, lines[name]) for name in names}
        for process in range(settings.repeat):
            for name in names:
                if not found[name].error:
                    tell(f"{name}, process {process + 1} of {settings.repeat}…")
                    said = _ask({"suite": str(path), "root": str(root), "case": name}, settings, Path(folder))
                    found[name] = _with(found[name], said)
    relative = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    return Bench(relative, str(root), settings, tuple(found.values()))


def _with(case: CaseResult, said: Mapping[str, Any]) -> CaseResult:
    """A case after one more process."""
    if "record" not in said:
        error = said.get("error") or said["suite_error"]
        return CaseResult(case.name, case.line, case.record, case.processes, case.sources, error)
    record = Compilation.from_dict(said["record"])
    processes = (*case.processes, record.measurements)
    if case.record is not None:
        return CaseResult(case.name, case.line, case.record, processes, case.sources)
    return CaseResult(case.name, case.line, record, processes, said["sources"])


def _ask(request: dict[str, Any], settings: Settings, folder: Path) -> dict[str, Any]:
    """What a new process answers, with pinned threads; ``{"error": ...}`` if it died or took too long."""
    file = folder / "answer.json"
    file.unlink(missing_ok=True)
    environment = {**os.environ, **dict.fromkeys(_THREADS, str(settings.threads))}
    environment["PYTHONPATH"] = os.pathsep.join([_PACKAGE, *filter(None, [os.environ.get("PYTHONPATH")])])
    asked = json.dumps({**asdict(settings), **request, "answer": str(file)})
    command = [sys.executable, "-m", "nbcompile.bench.regressions.worker", asked]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=settings.timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {settings.timeout:g} s"}
    if not file.exists():
        last = (done.stderr.strip().splitlines() or [""])[-1]
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
        return {"error": f"its process died ({how}){': ' + last if last else ''}"}
    said: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return said
