"""Graph breaks: where Dynamo had to stop a graph, in one line each, with what to change.

Dynamo says a break in some 600 characters, through an artifact logger that is off by default. Here the
same exception becomes one :class:`GraphBreak`. The listening itself is in
:mod:`nbcompile.compiler.capture.listening`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import FrameType
from typing import Any

from torch import fx

from nbcompile.compiler.capture.graph_record import called_from, cell_callers, spans_of_frames
from nbcompile.record.compilation import GraphBreak
from nbcompile.record.recorder import Recorder

# (pattern of Dynamo's graph-break type and explanation, reason, what to change). The first match wins;
# the rest keep Dynamo's own words. {0} is what the pattern's group caught.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"builtin (?:operator )?`print`",
        "print() writes to the screen, which a graph cannot do",
        "Print after the compiled part, or once it returned; or delete the print.",
    ),
    (
        r"`(?:logging\.|_?warnings\.warn)|Logger|logging method",
        "a message is logged, which a graph cannot do",
        "Log after the compiled part; or see torch._dynamo.config.reorderable_logging_functions.",
    ),
    (
        r"(Tensor\.item\(\)|Tensor\.tolist\(\)|_local_scalar_dense)",
        "a tensor's value is needed in Python ({0}), so the graph must end to compute it",
        "Keep it a tensor (torch.where instead of if), or set "
        "torch._dynamo.config.capture_scalar_outputs = True.",
    ),
    (
        r"[Dd]ata-dependent (?:branching|jump)|generic_jump|Data-dependent assertion",
        "the branch depends on the values in a tensor",
        "Compute both sides and choose with torch.where(condition, a, b), or use torch.cond.",
    ),
    (
        r"Dynamic shape operator|Dynamic slicing|nonzero|masked_select|unique",
        "the shape of a result depends on the values in a tensor",
        "Use a mask (torch.where) of fixed shape, or set "
        "torch._dynamo.config.capture_dynamic_output_shape_ops = True.",
    ),
    (
        r"Operator `([\w.]+?)(?:\.default)?` has a non-Tensor output",
        "{0} gives Python a value that depends on the data in a tensor",
        "Use an operation that gives a tensor, or call this before or after the compiled part.",
    ),
    (
        r"Observed exception",
        "an exception is raised here",
        "",
    ),
    (
        r"trace the builtin `(?:<unknown module>\.)?([\w.]+?)\.?`",
        "{0} is not written in Python, and Dynamo does not know it",
        "Call it before or after the compiled part, write it with torch operations, or make it a custom "
        "operator (torch.library.custom_op).",
    ),
    (
        r"torch\._dynamo\.graph_break\(\)",
        "the code asks for a graph break here",
        "Remove the call of torch._dynamo.graph_break().",
    ),
    (
        r"`torch\.compiler\.disable` \(reason: (?!None\))(.+)\)",
        "a function that is marked torch.compiler.disable is called ({0})",
        "Remove the mark, or call it before or after the compiled part.",
    ),
    (
        r"torch\.compiler\.disable|torch\._dynamo\.disable",
        "a function that is marked torch.compiler.disable is called",
        "Remove the mark, or call it before or after the compiled part.",
    ),
    (
        r"Attempted to wrap RNN, GRU, or LSTM|RNN, GRU, or LSTM",
        "Dynamo does not trace torch.nn.RNN, GRU or LSTM",
        "Set torch._dynamo.config.allow_rnn = True, or keep the recurrent layer outside.",
    ),
    (
        r"Tensor\.numpy|numpy\(\)|np\.",
        "a tensor is handed to NumPy",
        "Stay in torch, or convert before or after the compiled part.",
    ),
    (
        r"backward\(\)|Tensor\.backward",
        "backward() is called inside the compiled part",
        "Compile the loss function only and call backward() on its result.",
    ),
    (
        r"marked as skipped|Skip(?:ping)? (?:inlining|calling)|skipfiles|C/C\+\+|builtin",
        "",
        "Call this function before or after the compiled part, or write it with torch operations.",
    ),
    (
        r"requires_grad_\(\)",
        "requires_grad_() is called on a tensor made inside the compiled part",
        "Call requires_grad_() on inputs, before the compiled part.",
    ),
)

_LOOP = "graph break in loop"


_STEP = re.compile(r"function `\w+\.step` in file `.*[/\\]torch[/\\]optim[/\\]")


def is_of_an_optimizer(frames: Sequence[Any], message: str) -> bool:
    """Whether a break is torch's own, around the step of an optimizer (or a scheduler's watch over it), which
    it compiles by itself."""
    filename = str(getattr(frames[-1], "filename", "")) if frames else ""
    return "/torch/optim/" in filename.replace("\\", "/") or _STEP.search(message) is not None


def break_of_exception(error: BaseException, cell_file: str, after_graph: str = "") -> GraphBreak | None:
    """The record of one of Dynamo's exceptions (Unsupported, UserError ...); None where nobody can mend it,
    nor needs to (:func:`is_of_an_optimizer`)."""
    cause: BaseException = error
    kind = str(getattr(error, "gb_type", None) or type(error).__name__)
    in_loop = kind.startswith(_LOOP)
    if in_loop:
        # The interesting exception is the one inside of the loop.
        cause = error.__cause__ or error.__context__ or error
        kind = str(getattr(cause, "gb_type", None) or kind)
    message = str(getattr(cause, "msg", None) or cause)
    reason, hint = explain(kind, message)
    if in_loop:
        reason += "; as this is inside a loop, the whole function ran eagerly"
        hint = f"{hint} Or move the loop body into a function of its own.".strip()
    frames = getattr(cause, "real_stack", None) or getattr(error, "real_stack", None) or ()
    if is_of_an_optimizer(frames, message):
        return None
    spans = called_from(cell_callers(cell_file), spans_of_frames(frames, cell_file))
    return GraphBreak(reason=reason, hint=hint, kind=kind, after_graph=after_graph, spans=spans)


def break_of_subgraph_reason(module: fx.GraphModule, recorder: Recorder, graph: str) -> GraphBreak | None:
    """The break that ended this graph, as Dynamo notes it on the graph itself; None if there was none
    (the function returned)."""
    found: Any = getattr(module, "compile_subgraph_reason", None)
    if (
        found is None
        or not getattr(found, "graph_break", False)
        or is_of_an_optimizer(found.user_stack or (), str(found.reason))
    ):
        return None
    message = str(found.reason)
    kind = message.strip().splitlines()[0].strip() if message.strip() else "graph break"
    reason, hint = explain(kind, message)
    cell_file = recorder.cell.filename if recorder.cell is not None else ""
    spans = spans_of_frames(found.user_stack or (), cell_file)
    return GraphBreak(reason=reason, hint=hint, kind=kind, after_graph=graph, spans=spans)


def explain(kind: str, message: str) -> tuple[str, str]:
    """(reason, what to change), one line each, for a graph-break type and Dynamo's long message."""
    explanation = re.sub(r" ?\(e\.g\.[^)]*\)", "", _section(message, "Explanation") or kind)
    searched = f"{kind}\n{explanation}"
    for pattern, reason, hint in _KNOWN:
        found = re.search(pattern, searched)
        if found:
            named = found.group(1) if found.groups() else ""
            return (reason.replace("{0}", named) if reason else _sentence(explanation)), hint
    hints = re.findall(r"^\s*Hint: (.*)$", message, re.MULTILINE)
    useful = [h for h in hints if "report an issue" not in h and "It may be possible" not in h]
    return _sentence(explanation), _sentence(useful[0]) if useful else ""


def _section(message: str, name: str) -> str:
    found = re.search(rf"^\s*{name}: (.*?)(?=^\s*(?:Hint|Developer debug context):|\Z)", message, re.M | re.S)
    return " ".join(found[1].split()) if found else ""


def _sentence(text: str, limit: int = 200) -> str:
    line = " ".join(text.split())
    end = re.search(r"\.(?= [A-Z`])", line)
    line = line[: end.start()] if end else line
    line = line.rstrip(".")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def exception_being_logged() -> BaseException | None:
    """The break that Dynamo is logging right now, found from inside a logging handler.

    ``InstructionTranslator.log_graph_break(self, ..., exc)`` takes it as an argument; where a frame is
    skipped, it is the exception being handled. This is the one place that knows.
    """
    import sys

    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "log_graph_break":
            found = frame.f_locals.get("exc")
            if isinstance(found, BaseException):
                return found
        frame = frame.f_back
    return sys.exc_info()[1]
