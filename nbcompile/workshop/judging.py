"""What the judges have in common: the form that an answer must have, and what they ask of the compiler.

A judge calls these with what the reader wrote. What is wrong with its form is a
:class:`~nbcompile.workshop.exercise.WrongAnswerError`, in the same words in each notebook.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

import nbcompile
from nbcompile.errors import NbcompileError, in_one_line
from nbcompile.record.compilation import Compilation, Graph
from nbcompile.workshop.exercise import UnansweredError, WrongAnswerError

# The form of an answer ---------------------------------------------------------------------------


def keyed(answer: Any, names: Collection[Any], each: str) -> None:
    """``answer`` is a dict with these keys; ``each`` is what stands under one of them: ``"a number"``."""
    if not isinstance(answer, Mapping) or set(answer) != set(names):
        raise WrongAnswerError(f"The answer is a dict with {each} for each of {', '.join(map(repr, names))}.")


def whole_numbers(answer: Any, names: Collection[Any]) -> None:
    """``answer`` is a dict with a whole number for each name."""
    keyed(answer, names, "a whole number")
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in answer.values()):
        raise WrongAnswerError("Each value of the answer is a whole number: write it in place of the dots.")


def yes_or_no(answer: Any, names: Collection[Any]) -> None:
    """``answer`` is a dict with True or False for each name."""
    keyed(answer, names, "True or False")
    if not all(isinstance(value, bool) for value in answer.values()):
        raise WrongAnswerError("Each value of the answer is True or False: write it in place of the dots.")


def number(answer: Any, what: str) -> float:
    """``answer``, which is a number; ``what`` it is, as a sentence's beginning: ``"The time in seconds"``."""
    if answer is ...:
        raise WrongAnswerError(f"{what}: write it in place of the dots.")
    if isinstance(answer, bool) or not isinstance(answer, int | float) or not math.isfinite(answer):
        raise WrongAnswerError(f"{what} is to be a number, not {shown(answer)}.")
    return float(answer)


def whole_number(answer: Any, what: str) -> int:
    """``answer``, which is a whole number; ``what`` it is, as a sentence's beginning."""
    if isinstance(answer, bool) or not isinstance(answer, int):
        raise WrongAnswerError(f"{what} is to be a whole number, not {shown(answer)}.")
    return answer


def shown(value: Any) -> str:
    """A value in a sentence: what it is where its own text would be long."""
    text = repr(value)
    plain = value is None or isinstance(value, bool | int | float | str | list | tuple | dict | set)
    return text if plain and len(text) <= 60 else f"a {type(value).__name__}"


def equal(answer: Mapping[str, Any], truth: Mapping[str, Any], hints: Mapping[str, str]) -> None:
    """Each value of ``answer`` is the true one; of the first that is not, its hint is told."""
    for name, value in truth.items():
        if answer[name] != value:
            raise WrongAnswerError(f"{name!r} is not {answer[name]}. {hints[name]}")


def one_of(answer: Mapping[str, Any], names: Collection[str], words: Collection[str]) -> None:
    """``answer`` is a dict with one of these words for each name, and no other."""
    keyed(answer, names, "a word")
    if missing := [name for name in names if not _is_one_of(answer[name], words)]:
        raise WrongAnswerError(f"{missing[0]}: answer with one of {', '.join(words)}.")


def _is_one_of(value: Any, words: Collection[str]) -> bool:
    return isinstance(value, str) and value in words


def function(answer: Any, signature: str = "") -> None:
    """``answer`` can be called, as ``signature`` says: ``"offset(i, j)"``."""
    if not callable(answer) or isinstance(answer, type):
        raise WrongAnswerError(f"The answer is a function{signature and f', {signature}'}.")


def returned(value: Any, name: str, do: str = "write its body in place of the dots") -> Any:
    """``value``, if the reader's function of this name returned any; ``do`` is what is to be done if not."""
    if value is None or value is ...:
        raise UnansweredError(f"{name} returns nothing yet: {do}.")
    return value


def called(fn: Callable[..., Any], name: str, *arguments: Any, when: str = "") -> Any:
    """What the reader's function returns. What it raises is wrong with the answer: ``name`` is what it is
    called, ``when`` says of what, as ``"on an empty row"``."""
    try:
        return fn(*arguments)
    except Exception as error:  # anything that a reader's function may raise
        raise WrongAnswerError(f"{name} raises {in_one_line(error)}{when and f', {when}'}.") from error


def why(error: Exception) -> str:
    """What went wrong in a compile, without what torch says around it."""
    inner = getattr(error, "inner_exception", error)
    if isinstance(inner, WrongAnswerError):
        return str(inner).removesuffix(".")
    return inner.message if isinstance(inner, NbcompileError) else in_one_line(inner)


def tensor(value: Any, name: str) -> torch.Tensor:
    """``value``, which the reader's function of this name returned: a tensor."""
    returned(value, name)
    if not isinstance(value, torch.Tensor):
        raise WrongAnswerError(f"{name} is to return a tensor, and returns {shown(value)}.")
    return value


def sentence(value: Any, name: str) -> str | None:
    """``value``, which the reader's rule of this name returned: a reason, or None."""
    if value is not None and not isinstance(value, str):
        raise WrongAnswerError(f"{name} is to return a sentence or None, and returns {shown(value)}.")
    return value


def like(got: Any, wanted: torch.Tensor, name: str) -> torch.Tensor:
    """``got``, which the reader's function of this name returned: a tensor of the shape and dtype of
    ``wanted``."""
    found = tensor(got, name)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        raise WrongAnswerError(f"{name} is to return {_kind(wanted)}, and returns {_kind(found)}.")
    return found


def _kind(value: torch.Tensor) -> str:
    return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {list(value.shape)}"


# What the compiler says --------------------------------------------------------------------------


def record_of(
    fn: Callable[..., Any], *inputs: Any, backend: str = "nbcompile", **options: Any
) -> Compilation:
    """The record of compiling ``fn`` for these inputs, with these options of the backend."""
    compiled = nbcompile.compile(fn, backend=backend, dynamic=False, options=options or None)
    compiled(*inputs)
    return compiled.compilation


def captured(record: Compilation) -> list[Graph]:
    """What Dynamo captured: its FX graphs."""
    return list(record.of_stage("fx"))


def traffic(record: Compilation) -> int:
    """Bytes that the kernels read and write in one call."""
    return sum(kernel.bytes_read + kernel.bytes_written for kernel in record.kernels)


def milliseconds(calls: Mapping[str, Callable[[], object]], seconds: float = 1.0) -> dict[str, float]:
    """The median time of each of these calls, measured in turns within about ``seconds`` for all."""
    from nbcompile.bench.measure.timing import interleaved, quiet

    with quiet():
        samples = interleaved(calls, budget=seconds)
    return {name: statistics.median(times) * 1e3 for name, times in samples.items()}
