"""The hooks into Inductor: there, gone afterwards, silent elsewhere, and never the compile's undoing."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from torch import fx

from nbcompile.backends.inductor import hooks
from nbcompile.backends.inductor.watch import Watch
from nbcompile.compiler.capture.function_to_fx import record_fx_graph
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder


class Heard:
    """Notes what it is told; ``raises`` when told of a refusal."""

    def __init__(self, raises: bool = False) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.raises = raises
        self.offers = self

    def __getattr__(self, name: str) -> Any:
        def told(*arguments: Any) -> None:
            if name == "refused" and self.raises:
                raise ValueError("no good")
            self.calls.append((name, arguments))

        return told


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def get_name(self) -> str:
        return self.name


def refuse() -> None:
    from torch._inductor.scheduler import WhyNoFuse

    WhyNoFuse(Named("op0"), Named("op1"))("numel mismatch (%s, %s)", 3, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("hook", hooks.HOOKS, ids=lambda hook: f"{hook.owner or hook.module}.{hook.name}")
def test_each_hook_finds_its_function_here(hook: hooks.Hook) -> None:
    before = hook.places()
    assert len(before) == 1 + len(hook.elsewhere)
    with hooks.listening(Heard()):
        for (holder, original), (_, around) in zip(before, hook.places(), strict=True):
            assert around is not original and vars(holder)[hook.name] is around
    assert hook.places() == before


def test_nothing_is_lost_on_this_torch() -> None:
    assert hooks.missing() == ()


def test_a_torch_without_a_function_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = [replace(hook, name="gone_since") if hook.name == "can_fuse" else hook for hook in hooks.HOOKS]
    monkeypatch.setattr(hooks, "HOOKS", tuple(gone))
    recorder = Recorder(Options(), "inductor")
    graph = record_fx_graph(fx.symbolic_trace(lambda x: x + 1), recorder)
    assert Watch(graph, recorder).compile(lambda inner: "compiled") == "compiled"
    assert recorder.parts(str) == ("This torch does not let the record of Inductor show fusion decisions.",)


def test_only_this_thread_and_only_meanwhile() -> None:
    heard = Heard()
    with hooks.listening(heard):
        refuse()
        other = threading.Thread(target=refuse)
        other.start()
        other.join()
    refuse()
    assert heard.calls == [("refused", ("op0", "op1", "numel mismatch (3, 4)"))]


def test_two_compiles_at_once() -> None:
    first, second = Heard(), Heard()
    with hooks.listening(first):
        with hooks.listening(second):
            refuse()
        refuse()
    assert len(first.calls) == len(second.calls) == 1


def test_a_listener_that_fails_is_told_so() -> None:
    heard = Heard(raises=True)
    with hooks.listening(heard):
        refuse()
    ((name, (what, error)),) = heard.calls
    assert (name, what, str(error)) == ("failed", "offers.refused", "no good")
