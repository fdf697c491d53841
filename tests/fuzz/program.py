"""A random program as data: it goes to JSON and back, and prints as the Python that a user would write.

Values are called ``v0``, ``v1`` ... in order of appearance, inputs first. A step holds the text of its
expression, so what is drawn, what runs step by step, what torch.compile gets and what a test shows are the
same text.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import linecache
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F

NAME = re.compile(r"\bv\d+\b")


@dataclass(frozen=True)
class Input:
    """One argument of a program.

    shape: Python for the shape of its base, in terms of the sizes: ``"(A, 4)"``.
    dtype: ``"float32"`` ...
    fill:  what the base is filled with, see :func:`tests.fuzz.execute.values`.
    view:  Python that makes the argument from the base ``b``: ``"b[:, ::2]"``, ``"b"`` for itself.
    base:  name of an earlier input whose base this one is a view of; ``shape`` and ``fill`` then mean
    nothing.
    grad:  whether it requires a gradient (it is a leaf of its own then, over the same memory).
    """

    name: str
    shape: str
    dtype: str
    fill: str = "normal"
    view: str = "b"
    base: str = ""
    grad: bool = False


@dataclass(frozen=True)
class Step:
    """One statement. ``results`` are the names that it defines (none: it is there for what it overwrites).
    ``exact``: eager rounds nothing in it, so that it is never a reason for other numbers. ``writes``: the
    name of the value that it overwrites."""

    op: str
    code: str
    results: tuple[str, ...]
    exact: bool = False
    writes: str = ""

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(NAME.findall(self.code)))

    @property
    def line(self) -> str:
        return f"{', '.join(self.results)} = {self.code}" if self.results else self.code


@dataclass(frozen=True)
class Program:
    """A whole program and how it is called.

    sizes:    values of the size names, one mapping for each call.
    mode:     ``"train"``: the results' gradients are taken; ``"twice"``: taken twice; ``"grad"``: not taken;
              ``"no_grad"`` and ``"inference"``: the function runs in these.
    autocast: ``""`` or the dtype of an autocast region. ``inside``: the regions are within the function.
    dynamic:  torch.compile's argument.
    captures: torch keeps sizes and numbers that depend on data in the graph.
    meets:    arguments that lie in one memory at every second call, each an element after the one before.
    """

    seed: int
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]
    sizes: tuple[Mapping[str, int], ...] = field(default_factory=lambda: ({},))
    mode: str = "grad"
    autocast: str = ""
    inside: bool = False
    dynamic: bool | None = None
    captures: bool = False
    meets: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | Mapping[str, Any]) -> Program:
        data = dict(json.loads(text) if isinstance(text, str) else text)
        data["inputs"] = tuple(Input(**item) for item in data["inputs"])
        data["steps"] = tuple(Step(**{**item, "results": tuple(item["results"])}) for item in data["steps"])
        data["results"] = tuple(data["results"])
        data["sizes"] = tuple(data["sizes"])
        data["meets"] = tuple(data.get("meets", ()))
        return cls(**data)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:10]

    @property
    def trains(self) -> bool:
        return self.mode in ("train", "twice")

    @property
    def mixes_devices(self) -> bool:
        """Whether, on a GPU, what the steps make from nothing is made on the CPU: a program in four."""
        return (len(self.steps) + len(self.inputs)) % 4 == 0

    def on(self, device: str) -> Program:
        """The program with what its steps make from nothing on ``device``: it was drawn on the CPU."""
        if device == "cpu" or not any(step.op == "from_nothing" for step in self.steps):
            return self
        there = f"device={device!r}"
        steps = [replace(step, code=step.code.replace("device='cpu'", there)) for step in self.steps]
        return replace(self, steps=tuple(steps))

    # -- as text -------------------------------------------------------------------------------

    def inputs_source(self, device: str = "cpu") -> str:
        """``def inputs(call, A, B)``: what makes the arguments of a call."""
        names = sorted({name for sizes in self.sizes for name in sizes})
        place = f", device={device!r}" if device != "cpu" else ""
        lines = [f"def inputs({', '.join(['call', *names])}):"]
        bases: dict[str, str] = {}
        for number, item in enumerate(self.inputs):
            base = bases.get(item.base)
            if base is None:
                base = f"b{number}"
                made = f"values({item.shape}, torch.{item.dtype}, {item.fill!r}, 10 * call + {number}{place})"
                lines.append(f"    {base} = {made}")
            bases[item.name] = base
            view = re.sub(r"\bb\b", base, item.view)
            lines.append(f"    {item.name} = {view}{'.detach().requires_grad_()' if item.grad else ''}")
        if self.meets:
            names = ", ".join(self.meets)
            lines += ["    if call % 2:", f"        {names} = in_one_memory({names})"]
        lines.append(f"    return {_tuple(item.name for item in self.inputs)}")
        return "\n".join(lines) + "\n"

    def regions(self, device: str = "cpu") -> list[str]:
        """The contexts that the program runs in, as Python."""
        found = []
        if self.mode == "no_grad":
            found.append("torch.no_grad()")
        if self.mode == "inference":
            found.append("torch.inference_mode()")
        if self.autocast:
            found.append(f"torch.autocast({device!r}, dtype=torch.{self.autocast})")
        return found

    def source(self, device: str = "cpu", name: str = "program") -> str:
        """``def program(v0, v1)``."""
        lines = [f"def {name}({', '.join(item.name for item in self.inputs)}):"]
        indent = "    "
        if self.inside and self.regions(device):
            lines.append(f"{indent}with {', '.join(self.regions(device))}:")
            indent += "    "
        lines += [indent + step.line for step in self.steps]
        lines.append(f"{indent}return {_tuple(self.results)}")
        return "\n".join(lines) + "\n"


def _tuple(names: Any) -> str:
    listed = list(names)
    return f"({listed[0]},)" if len(listed) == 1 else f"({', '.join(listed)})"


_FILES: list[str] = []


def function(source: str, name: str, **scope: Any) -> Callable[..., Any]:
    """The function called ``name`` that ``source`` defines, its lines known to tracebacks and to Dynamo."""
    filename = f"<fuzz {hashlib.sha256(source.encode()).hexdigest()[:12]}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    _FILES.append(filename)
    while len(_FILES) > 200:  # a long run must not keep the text of every program
        linecache.cache.pop(_FILES.pop(0), None)
    names = {"torch": torch, "F": F, **scope}
    exec(compile(source, filename, "exec"), names)
    return names[name]  # type: ignore[no-any-return]
