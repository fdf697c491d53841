"""One of Inductor's loops as a line to read: ``buf2[16*p0 + p1] = exp(buf0[16*p0 + p1] - buf1[p0])``."""

from __future__ import annotations

from typing import Any

import torch

_INFIX = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "lt": "<",
          "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and_": "&", "or_": "|", "xor": "^",
          "logical_and": "&", "logical_or": "|", "bitwise_and": "&", "bitwise_or": "|"}  # fmt: skip
_NOT_WORK = frozenset(("load", "store", "store_reduction", "constant", "index_expr", "get_index", "output"))
_LONG = 24
"""Characters from which a value that is read twice gets a name."""


def loop_text(body: Any) -> str:
    """``body``: a ``torch._inductor.loop_body.LoopBody``. Its statements, its axes behind them."""
    printer = _Printer(body)
    stored = printer.block(body.root_block)
    reduced = {str(axis) for axis in body.reduce_vars}
    ranges = [(str(axis), str(extent)) for axis, extent in body.var_ranges.items()]
    over = ", ".join(f"{axis}<{extent}" for axis, extent in ranges if axis in reduced)
    along = ", ".join(f"{axis}<{extent}" for axis, extent in ranges if axis not in reduced)
    places = f"  over {over}" if over else ""
    return "; ".join([*printer.named, *stored]) + places + (f"  for {along}" if along else "")


def operations(body: Any) -> int:
    """How many operations one point of the loop does: loads, stores and indices aside."""
    blocks = [body.root_block, *body.subblocks.values()]
    return sum(
        node.op == "call_method" and node.target not in _NOT_WORK
        for block in blocks
        for node in block.graph.nodes
    )


class _Printer:
    """Walks the FX graph that Inductor traced of a loop's body."""

    def __init__(self, body: Any) -> None:
        self.body = body
        self.named: list[str] = []  # "t0 = ..." of values that are read more than once

    def block(self, block: Any) -> list[str]:
        """The statements that store, in order; of a block that is called, the value that it returns."""
        stored: list[str] = []
        texts: dict[Any, str] = {}
        for node in block.graph.nodes:
            if node.op == "output":
                if not stored:
                    stored.append(self._argument(node.args[0], texts))
            elif node.op != "placeholder" or node.name != "ops":
                text = self._text(node, texts)
                if node.target in ("store", "store_reduction"):
                    stored.append(text)
                elif len(node.users) > 1 and len(text) > _LONG:
                    texts[node] = f"t{len(self.named)}"
                    self.named.append(f"{texts[node]} = {text}")
                else:
                    texts[node] = text
        return stored

    def _text(self, node: Any, texts: dict[Any, str]) -> str:
        arguments = [self._argument(item, texts) for item in node.args if str(item) != "ops"]
        name = str(node.target)
        if node.op == "call_module":
            return self._module(name, arguments)
        if name == "load":
            return f"{arguments[0]}[{arguments[1]}]"
        if name in ("store", "store_reduction"):
            mode = f" ({node.args[4]})" if len(node.args) > 4 and node.args[4] else ""
            return f"{arguments[0]}[{arguments[1]}] = {_bare(arguments[2])}{mode}"
        if name == "reduction":
            return f"{arguments[2]} {arguments[3]}"
        if name in ("constant", "index_expr"):
            return arguments[0]
        if name in ("to_dtype", "to_dtype_bitcast"):
            return f"{arguments[1]}({_bare(arguments[0])})"
        if name in _INFIX and len(arguments) == 2:
            return f"({arguments[0]} {_INFIX[name]} {arguments[1]})"
        if name == "getitem":
            return f"{arguments[0]}[{arguments[1]}]"
        return f"{name.rpartition('.')[2]}({', '.join(map(_bare, arguments))})"

    def _module(self, name: str, arguments: list[str]) -> str:
        if name == "get_index":
            return str(self.body.indexing_exprs.get(arguments[0], arguments[0]))
        if name.startswith("set_indirect"):  # from here on its value is called indirectN
            symbol = name.removeprefix("set_")
            self.named.append(f"{symbol} = {_bare(arguments[0])}")
            return symbol
        block = self.body.subblocks.get(name)
        if block is not None and len(arguments) == 2:  # masked: its value where the mask holds
            return f"({_bare(self.block(block)[-1])} if {_bare(arguments[0])} else {arguments[1]})"
        return f"{name}({', '.join(arguments)})"

    def _argument(self, value: Any, texts: dict[Any, str]) -> str:
        if isinstance(value, torch.fx.Node):
            return texts.get(value, value.name)
        if isinstance(value, tuple | list):
            return f"({', '.join(self._argument(item, texts) for item in value)})"
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        return str(value)


def _bare(text: str) -> str:
    """Without the parentheses around the whole."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if place == len(text) - 1 else text
    return text
