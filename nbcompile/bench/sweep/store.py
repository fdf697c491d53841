"""What a sweep has done, on disk: a file of JSON lines, one point a line, and the key a point goes by.

A line is appended in one write, so that a sweep that is killed leaves whole lines; one that is cut off all
the same is passed over, and the point run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import types
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from nbcompile.backends import registry
from nbcompile.bench.measure.code_objects import names_in
from nbcompile.bench.measure.compare import Measuring
from nbcompile.bench.sweep.grid import Point
from nbcompile.bench.sweep.point import Outcome, SweepProgram
from nbcompile.errors import RecordError
from nbcompile.record.compilation import Compilation
from nbcompile.record.environment import detect
from nbcompile.record.packed import pack
from nbcompile.settings import CompileSettings

SCHEMA = "nbcompile.bench.sweep/1"
_DEPTH = 6


class PointStore:
    """The finished points in a file, by key; ``path=None`` keeps nothing."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = Path(path).expanduser() if path is not None else None
        self._whole = True  # the file ends with a line's end

    def read(self) -> dict[str, Outcome]:
        """The finished points. RecordError if the file is something else."""
        found: dict[str, Outcome] = {}
        if self.path is None or not self.path.exists():
            return found
        text = self.path.read_bytes()
        self._whole = not text or text.endswith(b"\n")
        lines = text.split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                data = json.loads(line)
            except ValueError as error:
                if found or number == len(lines):
                    continue  # cut off when its writer was killed
                raise RecordError(f"{self.path} is no store of a sweep: line {number} is no JSON.") from error
            if not isinstance(data, dict) or data.get("schema") != SCHEMA:
                raise RecordError(
                    f"{self.path} is no store of a sweep: line {number} does not say {SCHEMA}.",
                    advice="Choose another file.",
                )
            found[str(data["key"])] = outcome_from(data)
        return found

    def write(self, key: str, point: Point, outcome: Outcome) -> None:
        """Append a finished point."""
        if self.path is None:
            return
        data = {"schema": SCHEMA, "key": key, "point": dict(point.values), **outcome_to(outcome)}
        line = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, line if self._whole else b"\n" + line)
            self._whole = True
        finally:
            os.close(file)


def outcome_to(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON values: how it is stored, and how it comes from another process."""
    record = pack(outcome.record.to_dict()) if outcome.record is not None else None
    return {
        "status": outcome.status,
        "reason": outcome.reason,
        "seconds": round(outcome.seconds, 3),
        "record": record,
    }


def outcome_from(data: Mapping[str, Any]) -> Outcome:
    """What :func:`outcome_to` wrote. RecordError for a record of a newer nbcompile."""
    record = Compilation.from_dict(data["record"]) if data.get("record") is not None else None
    return Outcome(data["status"], data["reason"], record, float(data["seconds"]))


# -- keys ------------------------------------------------------------------------------------------


def keys_of(
    program: SweepProgram,
    settings: Mapping[Point, CompileSettings],
    measuring: Measuring,
    isolated: bool,
) -> dict[Point, str]:
    """For each point a hash of all that its figures depend on: code and what it reaches, the point with its
    options, how it is measured, versions and processor.

    Of tensors that the code reaches only type, shape and device count, not values: a model made anew, with
    other random weights, is the same program.
    """
    here = detect()
    common = [
        _described(program.fn, _DEPTH, set()),
        _described(program.make_inputs, _DEPTH, set()),
        repr(measuring),
        str(isolated),
        " ".join((here.nbcompile, here.python, here.torch, here.triton, here.processor)),
    ]
    start = hashlib.sha256("\n".join(common).encode())
    found = {}
    for point, asked in settings.items():
        digest = start.copy()
        text = (
            sorted(point.values, key=lambda item: item[0]),
            sorted((asked.options or {}).items()),
            asked.fullgraph,
            _version(point.backend),
        )
        digest.update(repr(text).encode())
        found[point] = digest.hexdigest()[:32]
    return found


def _version(backend: str) -> str:
    known = registry.backends().get(backend)
    found = []
    for package in known.packages if known is not None else ():
        try:
            found.append(metadata.version(package.partition("[")[0]))
        except metadata.PackageNotFoundError:
            found.append("")
    return " ".join(found)


def _described(value: Any, depth: int, seen: set[int]) -> str:
    """What a value means for a program, the same in every session: no addresses, no names of cells."""
    if depth <= 0 or id(value) in seen:
        return type(value).__qualname__
    deeper = depth - 1
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}{value.device}{value.requires_grad}"
    if isinstance(value, types.CodeType):
        return _code(value, deeper, seen)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | torch.dtype):
        return repr(value)
    seen = seen | {id(value)}
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, types.FunctionType):
        return "\n".join(_of_function(value, deeper, seen))
    if isinstance(value, types.MethodType):
        return _described(value.__func__, depth, seen) + _described(value.__self__, deeper, seen)
    if isinstance(value, torch.nn.Module):
        state = [f"{name}: {_described(tensor, 1, seen)}" for name, tensor in value.state_dict().items()]
        kinds = sorted({_described(type(module), deeper, seen) for module in value.modules()})
        return "\n".join((repr(value), *state, *kinds, str(value.training)))
    if isinstance(value, type):
        return "\n".join((value.__qualname__, *_of_class(value, deeper, seen)))
    if isinstance(value, list | tuple | dict | set | frozenset):
        leaves = value.items() if isinstance(value, dict) else value
        inside = [_described(item, deeper, seen) for item in leaves]
        return f"{type(value).__name__}({', '.join(sorted(inside) if isinstance(value, set) else inside)})"
    inner = getattr(value, "__wrapped__", None)
    return f"{type(value).__qualname__} {_described(inner, deeper, seen) if inner is not None else ''}"


def _code(code: types.CodeType, depth: int, seen: set[int]) -> str:
    constants = [_described(constant, depth + 1, seen) for constant in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"


def _of_function(function: types.FunctionType, depth: int, seen: set[int]) -> Iterator[str]:
    if (function.__module__ or "").partition(".")[0] in ("torch", "builtins", "numpy"):
        yield f"{function.__module__}.{function.__qualname__}"  # the version says what it is
        return
    yield _code(function.__code__, depth, seen)
    yield _described(function.__defaults__, depth, seen)
    yield _described(function.__kwdefaults__, depth, seen)
    for cell in function.__closure__ or ():
        yield _described(_contents(cell), depth, seen)
    for name in names_in(function.__code__):
        if name in function.__globals__:
            yield f"{name} = {_described(function.__globals__[name], depth, seen)}"


def _of_class(kind: type, depth: int, seen: set[int]) -> Iterator[str]:
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in ("torch", "builtins", "typing", "abc"):
            members: Mapping[str, Any] = vars(base)
            for name in sorted(members):
                member: Callable[..., Any] | Any = getattr(members[name], "__func__", members[name])
                if isinstance(member, types.FunctionType):
                    yield f"{name}: {_described(member, depth, seen)}"


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None
