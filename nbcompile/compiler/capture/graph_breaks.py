"""Graph breaks: where Dynamo had to stop a graph, in one line each, with what to change.

Dynamo says a break in some 600 characters, through an artifact logger that is off by default. Here the
same exception becomes one :class:`GraphBreak`. The listening itself is in
:mod:`nbcompile.compiler.capture.listening`.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from types import FrameType
from typing import Any

from torch import fx

from nbcompile.compiler.capture.graph_record import called_from, cell_callers, spans_of_frames
from nbcompile.record.compilation import GraphBreak
from nbcompile.record.recorder import Recorder

_BRANCH = "the branch depends on the values in a tensor"
LOOP_BY_VALUES = (
    "how often the loop runs depends on the values in a tensor",
    "Run a fixed number of steps, and keep what has converged with torch.where(condition, new, old).",
)
"""(reason, what to change) of a ``while`` that asks a tensor at each step."""

# (pattern of Dynamo's graph-break type and explanation, reason, what to change). The first match wins;
# the rest keep Dynamo's own words. {0} is what the pattern's group caught.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"as_proxy\(\)",
        "an argument is an object that no graph can hold",
        "Make what needs it (such as numbers drawn with a torch.Generator) before the compiled part, and "
        "hand that in.",
    ),
    (
        r"how to iterate over",
        "what is iterated over is an object that Dynamo does not know",
        "Make a list of it before the compiled part.",
    ),
    (
        r"C/C\+\+ based str method",
        "text is made of an object that Dynamo does not know",
        "Make text outside of the compiled part.",
    ),
    (
        r"NumpyVariable",
        "a NumPy array is used in Python",
        "Stay in torch, or convert before or after the compiled part.",
    ),
    (
        r"numpy\.\* functions as methods",
        "a method of a NumPy array is called, or an item of one is set",
        "Stay in torch, or convert before or after the compiled part.",
    ),
    (
        r"setattr\(\) is not supported",
        "an attribute of an object that Dynamo does not know is set",
        "Set it before or after the compiled part.",
    ),
    (
        r"intentionally marked that the function `([^`]+)`",
        "{0} is left to Python: Dynamo does not follow it",
        "Call it before or after the compiled part.",
    ),
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
        _BRANCH,
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
        r"builtin operator <built-in function (\w+)> with tensor arguments",
        "Dynamo does not know {0} of these: a tensor, or a number that is drawn at random",
        "Draw the number before the compiled part, or write it with torch operations.",
    ),
    (
        r"RemovableHandle",
        "a hook is put on or taken off",
        "Put hooks on and take them off before or after the compiled part.",
    ),
    (
        r"`(torch\.autograd\.\w+)` with (?:config )?`torch\._dynamo\.config\.trace_autograd_ops",
        "{0}() is called inside the compiled part",
        "Call it outside, on the result of what is compiled, or set "
        "torch._dynamo.config.trace_autograd_ops = True.",
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

# What tracing says of a number that only the data gives: (pattern of the line, reason, hint).
_OF_VALUES = (
    (
        r"specialized integer from data-dependent expression",
        "a number that depends on the values in a tensor is used as an index or a size",
        "Index with a tensor of all such numbers at once (index_put_, scatter_add_, torch.bincount), or do "
        "this outside of the compiled part.",
    ),
    (
        r"data-dependent expression",
        "what is done here depends on the values in a tensor",
        "Keep it a tensor (torch.where instead of if, & and | instead of and and or), or decide outside of "
        "the compiled part.",
    ),
)

# What the rest of Dynamo's registry is about, and what to do: (pattern of its type, subject, what to change).
# The first match wins; tests/coach/test_registry.py holds that every type has one.
_FAMILIES: tuple[tuple[str, str, str], ...] = (
    (
        r"[Rr]ecompile limit|cache limit|RestartAnalysis",
        "compiled again too often",
        "See what changes from call to call; mark sizes dynamic, hand numbers in as tensors.",
    ),
    (
        r"higher.?order|HigherOrder|HOP|torch\.(cond|while_loop|scan|map|associative_scan)"
        r"|invoke_subgraph|hints_wrapper"
        r"|out_dtype|[Ss]trict.mode|executorch|wrap_with|SDPAParams|FlexAttention|nonstrict_trace|leaf.function"
        r"|rewrite_signature|set_subgraph|non-single Tensor return",
        "a function handed to an operator such as torch.cond",
        "Let it take and return tensors only, alike on every path, and change nothing outside of it.",
    ),
    (
        r"autograd|backward|grad_fn|[Hh]ook|vjp|jvp|requires_grad|retain_grad|RemovableHandle|ImperativeEngine|sparse_grad"
        r"|tensor and its gradient",
        "the autograd graph is used or changed inside",
        "Compile the forward computation only, and differentiate outside of it.",
    ),
    (
        r"NestedTensor|nested_tensor|[Ss]parse",
        "a nested or sparse tensor",
        "Convert it to a strided tensor, or keep this part outside of the compiled function.",
    ),
    (
        r"subclass|__torch_function__|torch function mode",
        "a tensor subclass",
        "Use a plain tensor inside, or give the subclass __tensor_flatten__ and __torch_dispatch__.",
    ),
    (r"numpy|ndarray", "NumPy is used", "Stay in torch, or convert before or after the compiled part."),
    (
        r"P2P|isend|distributed|collectives|FSDP|Placement",
        "a distributed call",
        "Use the functional collectives, or call it outside of the compiled part.",
    ),
    (
        r"functorch|functional_call",
        "torch.func around or inside",
        "Put torch.compile outside of torch.func's transforms.",
    ),
    (
        r"[Tt]riton|tma|wrap_jit",
        "a Triton kernel's call",
        "Wrap the kernel with torch.library.triton_op, with a grid and arguments that are plain.",
    ),
    (
        r"TorchScript|jit\.script|ScriptModules|FakeScript",
        "TorchScript inside",
        "Use the module as it was before torch.jit.",
    ),
    (r"[Oo]paque|pytree", "an opaque object", "Make it before the compiled part, and hand it in."),
    (
        r"[Gg]enerator|StopIteration|next\(\)|iter\(|itertools|tp_iter|SEND|CLEANUP|cycle",
        "a generator or iterator",
        "Make a list of what it yields, or a loop.",
    ),
    (
        r"[Cc]ontext|contextlib|record_function|profiler|annotate",
        "a context manager",
        "Enter the context outside of the compiled part.",
    ),
    (
        r"fake|Fake|real value|meta|Operator|op packet|placeholder|PT2|fx\.Node|call_method node|proxy"
        r"|Backend|[Cc]onstant fold|constant_result|dependent operator|elementwise",
        "an operator that cannot be traced without data",
        "Give the operator a fake implementation (torch.library.register_fake), or call it outside.",
    ),
    (
        r"SymInt|SymNode|symbolic|one_hot|[Dd]ynamic|data-dependent|guard_scalar|[Ss]hape",
        "a size that is not known",
        "Give the size as a number, or mark it dynamic before the call.",
    ),
    (
        r"nn\.Module|nn\.Parameter|Module|Parameter|_ntuple",
        "a module or parameter used in an uncommon way",
        "Make and change modules and parameters before the compiled part.",
    ),
    (
        r"[Hh]ash|id\(|identity|weakref|richcompare|pointer|compar",
        "objects are told apart by hash, id or comparison",
        "Compare plain values (numbers, text), or decide before the compiled part.",
    ),
    (
        r"repr|str\(|str_impl|BUILD_STRING|__repr__",
        "text is made of a value",
        "Make text outside of the compiled part.",
    ),
    (
        r"[Rr]econstruct|escaped|closure|leaked|side.effect|[Mm]utat|immutable|materialized|deque",
        "something made or changed inside has to outlive the graph",
        "Return tensors, and build other objects from them after the compiled part.",
    ),
    (
        r"[Ee]xception|raise|traceback|TypeError|assert|Assertion|_check|unittest",
        "an exception or assertion",
        "Check before the compiled part, or with torch._check and torch._assert_async.",
    ),
    (
        r"[Bb]ytecode|intrinsic|INTRINSIC|LOAD_|BUILD_|UNPACK|Comprehension|STORE_ATTR|uninitialized|undefined|deleted"
        r"|NullVariable|step_unsupported|skip.frame|skip_frame|partial graph|inlined function|ComptimeContext"
        r"|__build_class__|in loop|frame builtins|Variadic|vectorcall|_gb_type",
        "Python that Dynamo does not follow",
        "Write it more plainly, or move it out of the compiled function.",
    ),
    (
        r"dict|mapping|\bset\b|list|slice|range|namedtuple|NamedTuple|unpack|Enum|dataclass|typing|TypedDict|subscript|item"
        r"|key|sq_|len|mp_|concat|contains|sort|partial|cast",
        "a container or value of Python used in an uncommon way",
        "Use lists, tuples and dicts of plain keys, or prepare it before the compiled part.",
    ),
    (
        r"super|__dict__|attr|descriptor|__class__|mro|isinstance|issubclass|metaclass|user.defined|__func__|__get__|wraps"
        r"|object|self|inspect|_source|SourceType|type\b|construct",
        "a class or attribute used in an uncommon way",
        "Read what is needed of the object before the compiled part, and hand it in.",
    ),
    (
        r"[Rr]andom|uniform_|Generator|deterministic",
        "random numbers of their own",
        "Draw them with torch.rand, or before.",
    ),
    (
        r"out=|resize|set_\(|[Tt]ensor|as_subclass|share_memory|inference",
        "a tensor operation that graphs do not have",
        "Use one that makes a new tensor, or do it outside of the compiled part.",
    ),
    (
        r"stream|event|device|accelerator|allocator",
        "a device's streams or events",
        "Use them outside of the compiled part.",
    ),
    (r"[Ii]mport", "a module is imported", "Import it at the top."),
    (
        r"nb_|tp_|slot|builtin|not implemented|handler|method|call|function|argument"
        r"|deepcopy|args|kwargs|Python constant|bind",
        "a call or method that Dynamo does not know",
        "Call it before or after the compiled part, or write it with torch operations.",
    ),
)


def family(kind: str) -> tuple[str, str]:
    """(what a graph-break type of Dynamo's registry is about, what to change), in our words; empty for a type
    that none of ours knows."""
    for pattern, reason, hint in _KNOWN:
        if re.search(pattern, kind) and hint:
            return reason.replace("{0}", "this call") or "a function that is not traced", hint
    found = (line[1:] for line in _FAMILIES if re.search(line[0], kind))
    return next(found, ("", ""))


_LOOP = "graph break in loop"


_STEP = re.compile(r"function `\w+\.step` in file `.*[/\\]torch[/\\]optim[/\\]")


def is_of_an_optimizer(frames: Sequence[Any], message: str) -> bool:
    """Whether a break is torch's own, around the step of an optimizer (or a scheduler's watch over it), which
    it compiles by itself."""
    filename = str(getattr(frames[-1], "filename", "")) if frames else ""
    return "/torch/optim/" in filename.replace("\\", "/") or _STEP.search(message) is not None


def what_stops_a_step(error: BaseException) -> str:
    """Why Dynamo breaks the graph in what an optimizer's step computes; empty where it is around that."""
    frames = getattr(error, "real_stack", None) or ()
    filename = str(getattr(frames[-1], "filename", "")).replace("\\", "/") if frames else ""
    if "/torch/optim/" not in filename or filename.endswith("/optimizer.py"):
        return ""
    return explain(str(getattr(error, "gb_type", None)), str(getattr(error, "msg", None) or error))[0]


IN_LOOP = "; as this is inside a loop, the whole function ran eagerly"
"""What the reason of a break says more where Dynamo gives up the whole function."""


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
    frames = getattr(cause, "real_stack", None) or getattr(error, "real_stack", None) or ()
    reason, hint = of_a_loop(explain(kind, message), frames)
    if in_loop:
        reason += IN_LOOP
        hint = f"{hint} Or move the loop body into a function of its own.".strip()
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
    reason, hint = of_a_loop(explain(kind, message), found.user_stack or ())
    cell_file = recorder.cell.filename if recorder.cell is not None else ""
    spans = spans_of_frames(found.user_stack or (), cell_file)
    return GraphBreak(reason=reason, hint=hint, kind=kind, after_graph=graph, spans=spans)


def of_a_loop(told: tuple[str, str], frames: Sequence[Any]) -> tuple[str, str]:
    """What :func:`explain` has told of a branch, or, where a ``while`` stands there, what is to be told of a
    loop: Dynamo has one word for both."""
    if told[0] != _BRANCH or not frames:
        return told
    line = linecache.getline(frames[-1].filename, frames[-1].lineno or 0)
    return LOOP_BY_VALUES if re.match(r"\s*while\b", line) else told


def explain(kind: str, message: str) -> tuple[str, str]:
    """(reason, what to change), one line each, for a graph-break type and Dynamo's long message."""
    if of_values := depends_on_values(f"{kind} {message.partition(chr(10))[0]}"):
        return of_values
    explanation = re.sub(r" ?\(e\.g\.[^)]*\)", "", _section(message, "Explanation") or kind)
    searched = f"{kind}\n{explanation}"
    if kind.startswith(_OF_A_VARIABLE):  # which one only the context tells
        searched += f"\n{message.partition('debug context:')[2]}"
    for pattern, reason, hint in _KNOWN:
        found = re.search(pattern, searched)
        if found:
            named = found.group(1) if found.groups() else ""
            told = reason.replace("{0}", without_addresses(named)) if reason else _sentence(explanation)
            return told, hint
    hints = re.findall(r"^\s*Hint: (.*)$", message, re.MULTILINE)
    useful = [h for h in hints if "report an issue" not in h and "It may be possible" not in h]
    subject, ours = family(kind)
    said = _sentence(explanation)
    return said if said != kind or not subject else f"{subject}: {said}", _sentence(
        useful[0]
    ) if useful else ours


_OF_A_VARIABLE = "Unsupported python_type() call"


def depends_on_values(line: str) -> tuple[str, str] | None:
    """(reason, what to change) for the first line of an error of torch's that speaks of its own symbols; None
    where it is no such error."""
    return next((found[1:] for found in _OF_VALUES if re.search(found[0], line)), None)


def _section(message: str, name: str) -> str:
    found = re.search(rf"^\s*{name}: (.*?)(?=^\s*(?:Hint|Developer debug context):|\Z)", message, re.M | re.S)
    return " ".join(found[1].split()) if found else ""


def without_addresses(text: str) -> str:
    """What torch or Python says, with names for functions (``f`` for ``<function f at 0x7f…>``) and without
    places in memory."""
    named = re.sub(r"<(?:built-in |bound )?(?:function|method) ([\w.]+)(?: at 0x[0-9a-fA-F]+)?>", r"\1", text)
    return re.sub(r" at 0x[0-9a-fA-F]+|\b0x[0-9a-fA-F]{6,}\b", "", named)


def _sentence(text: str, limit: int = 200) -> str:
    line = without_addresses(" ".join(text.split()))
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
