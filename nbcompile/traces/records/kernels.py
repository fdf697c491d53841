"""Inductor's output code, read as what runs: generated kernels, library calls, and the buffers between them.

The code is a Python module that is never run here: definitions and the lines of ``call`` are read as text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_CALLS = 20_000
_NAME = r"[A-Za-z_]\w*"
_DEFINED = re.compile(rf"^({_NAME}) = async_compile\.(\w+)\((.*)$")
_CALLED = re.compile(rf"^(?:(?P<to>{_NAME}) = )?(?P<what>[A-Za-z_][\w.]*)\((?P<arguments>.*)\)\s*(?:#.*)?$")
_ALLOCATED = re.compile(
    rf"^({_NAME}) = empty_strided\w*\(\(([^()]*)\), \(([^()]*)\), (?:device='(\w+)', dtype=)?torch\.(\w+)\)?"
)
_CHECKED = re.compile(rf"^assert_size_stride\(({_NAME}), \(([^()]*)\), \(([^()]*)\)")
_RENAMED = re.compile(
    rf"^({_NAME}) = (?:reinterpret_tensor\()?({_NAME})(?:\[\d+\])?[^\w(].*$|^({_NAME}) = ({_NAME})$"
)
_WORDS = re.compile(rf"(?<![\w.]){_NAME}")
_OUT = re.compile(rf"\bout=({_NAME})")
_MAPPED = re.compile(r"^#\s{1,8}[\w.]+ => ([\w, ]+)$")
_ATEN = re.compile(r"Original ATen: \[([^\]]*)\]")
_NO_WORK = frozenset(
    "assert_size_stride assert_alignment empty_strided_cpu empty_strided_cuda empty_strided_xpu args.clear "
    "reinterpret_tensor empty_strided empty_strided_mtia raise_if_nonfinite del print get_raw_stream "
    "empty_strided_cpu_pinned get_cuda_stream alloc_from_pool empty_strided_p2p record_stream".split()
)


@dataclass(frozen=True)
class GeneratedKernel:
    """A kernel's definition. ``nodes`` are the ATen nodes that Inductor says it was made of, where it does.
    ``outputs`` are the places of its arguments that it writes."""

    name: str
    language: str
    source: str
    nodes: tuple[str, ...] = ()
    outputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class RunStep:
    """One call, in the order they run; ``kernel`` is empty for one into a library, whose ``op`` says which.
    ``reads`` and ``writes`` are names of buffers."""

    op: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    kernel: str = ""
    text: str = ""
    aten: tuple[str, ...] = ()


@dataclass(frozen=True)
class BufferForm:
    """Extents and strides as the code has them: numbers, or text where they are symbols."""

    shape: tuple[int | str, ...]
    stride: tuple[int | str, ...]
    dtype: str | None = None
    device: str = ""


@dataclass(frozen=True)
class OutputCode:
    """What one module of Inductor's runs. ``wrapper`` is its text with each kernel's left out."""

    kernels: dict[str, GeneratedKernel]
    steps: tuple[RunStep, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    forms: dict[str, BufferForm]
    wrapper: str
    left_out: int = 0


@dataclass
class _Running:
    kernels: dict[str, GeneratedKernel]
    steps: list[RunStep] = field(default_factory=list)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    forms: dict[str, BufferForm] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)  # a name → the buffer whose memory it is
    above: str = ""
    left: int = 0

    def buffer(self, name: str) -> str:
        """The buffer that a name stands for."""
        seen = 0
        while name in self.same and seen < 100:
            name, seen = self.same[name], seen + 1
        return name


def read_code(text: str) -> OutputCode:
    """Never raises: what is not recognised is left in the wrapper's text."""
    kernels, rest = _definitions(text.split("\n"))
    running = _Running(kernels)
    for line in _called_lines(rest):
        if len(running.steps) < MOST_CALLS:
            _step(running, line)
        else:
            running.left += 1
    return OutputCode(
        kernels,
        tuple(running.steps),
        running.inputs,
        running.outputs,
        running.forms,
        "\n".join(rest),
        running.left,
    )


def _definitions(lines: list[str]) -> tuple[dict[str, GeneratedKernel], list[str]]:
    kernels: dict[str, GeneratedKernel] = {}
    rest: list[str] = []
    comments: list[str] = []
    place = 0
    while place < len(lines):
        line = lines[place]
        found = _DEFINED.match(line)
        if found is None or "'''" not in line:
            comments = [*comments[-400:], line] if line.startswith("#") else []
            rest.append(line)
            place += 1
            continue
        end = place + 1
        while end < len(lines) and not lines[end].startswith("'''"):
            end += 1
        source = "\n".join(lines[place + 1 : end]).strip("\n")
        kernels[found[1]] = _kernel(found[1], found[2], found[3], source, comments)
        rest.append(f"{line}\n...  # the text of {found[1]}")
        rest += lines[end : end + 1]
        comments, place = [], end + 1
    return kernels, rest


def _kernel(name: str, kind: str, header: str, source: str, comments: list[str]) -> GeneratedKernel:
    language = "triton" if kind.startswith("triton") else "cpp" if kind.startswith("cpp") else kind
    if language == "cpp":
        types = re.findall(r"'([^']*)'", header[: header.find("]")])
        outputs = tuple(n for n, each in enumerate(types) if each.endswith("*") and "const" not in each)
    else:
        signature = re.search(rf"^def {_NAME}\(([^)]*)\)", source, re.MULTILINE)
        parameters = signature[1].split(",") if signature else []
        outputs = tuple(
            n for n, each in enumerate(parameters) if each.strip().startswith(("out_", "in_out_"))
        )
    mapped = [found[1] for line in comments if (found := _MAPPED.match(line))]
    nodes = dict.fromkeys(node.strip() for each in mapped for node in each.split(","))
    return GeneratedKernel(name, language, source, tuple(node for node in nodes if node), outputs)


def _called_lines(lines: list[str]) -> list[str]:
    """The lines of ``call`` and of the partitions that it is cut into."""
    found: list[str] = []
    inside = -1
    for line in lines:
        plain = line.strip()
        indent = len(line) - len(line.lstrip())
        if re.match(r"def (?:call|partition_\d+)\(", plain):
            inside = indent
        elif inside >= 0 and plain and indent <= inside:
            inside = -1
        elif inside >= 0 and plain:
            found.append(plain)
    return found


def _step(running: _Running, line: str) -> None:
    if line.startswith("#"):
        running.above = line if "Original ATen" in line else running.above
        return
    if line.startswith("return"):
        running.outputs = tuple(dict.fromkeys(map(running.buffer, _WORDS.findall(line[6:]))))
    elif line.endswith("= args"):
        names = tuple(_WORDS.findall(line.removesuffix("= args")))
        running.inputs = tuple(dict.fromkeys((*running.inputs, *names)))
    elif allocated := _ALLOCATED.match(line):
        name, shape, stride, device, dtype = allocated.groups()
        device = device or re.match(rf"{_NAME} = empty_strided_?(\w*)", line)[1]  # type: ignore[index]
        running.forms[name] = BufferForm(_extents(shape), _extents(stride), dtype, device)
    elif checked := _CHECKED.match(line):
        running.forms.setdefault(checked[1], BufferForm(_extents(checked[2]), _extents(checked[3])))
    else:
        _call(running, line.partition("; del ")[0])


def _call(running: _Running, line: str) -> None:
    called = _CALLED.match(line)
    what = called["what"] if called else ""
    if called is None or what in _NO_WORK or what.startswith("empty_strided"):
        renamed = _RENAMED.match(line)
        if renamed:
            name, of = (renamed[1], renamed[2]) if renamed[1] else (renamed[3], renamed[4])
            running.same[name] = of
        elif called is not None and called["to"] and what in ("reinterpret_tensor", "alloc_from_pool"):
            words = _WORDS.findall(called["arguments"])
            running.same |= {called["to"]: words[0]} if words else {}
        return
    kernel = running.kernels.get(what.removesuffix(".run"))
    arguments = arguments_of(called["arguments"])
    if kernel is not None:
        names = [_WORDS.findall(each)[:1] for each in arguments]
        places = [n for n in kernel.outputs if n < len(names) and names[n]]
        writes = [names[n][0] for n in places]
        reads = [word[0] for n, word in enumerate(names) if word and n not in places]
        op = kernel.name
    else:
        writes = _OUT.findall(called["arguments"]) or ([called["to"]] if called["to"] else [])
        words = _WORDS.findall(re.sub(r"'[^']*'", "", called["arguments"]))
        reads = [word for word in words if word not in writes]
        op = what.removeprefix("torch.ops.")
        if not _is_work(what):
            return
    known = {running.buffer(each) for each in reads}
    running.steps.append(
        RunStep(
            op,
            tuple(sorted(each for each in known if each.startswith("buf") or each in running.inputs)),
            tuple(dict.fromkeys(map(running.buffer, writes))),
            kernel.name if kernel else "",
            line[:500],
            tuple(_aten_names(running.above)),
        )
    )
    running.above = ""


def _is_work(what: str) -> bool:
    first = what.partition(".")[0]
    return first in ("extern_kernels", "aten", "torch", "inductor_ops", "_quantized") and not what.startswith(
        ("torch.cuda", "torch._C", "torch.xpu", "torch.float", "torch.int")
    )


def _aten_names(comment: str) -> list[str]:
    found = _ATEN.search(comment)
    return [name.strip() for name in found[1].split(",") if name.strip()] if found else []


def arguments_of(text: str) -> list[str]:
    """Between the commas of the outermost level."""
    found, depth, begun = [], 0, 0
    for place, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            found.append(text[begun:place].strip())
            begun = place + 1
    return [*found, text[begun:].strip()]


def _extents(text: str) -> tuple[int | str, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(int(part) if part.isdigit() and len(part) < 19 else part[:60] for part in parts)
