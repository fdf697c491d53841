"""``nbcompile.interact``: what the controls say is compiled, checked and timed; what was chosen stays."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("ipywidgets")
pytest.importorskip("plotly")

import nbcompile
from nbcompile.errors import MeasureError, OptionError
from nbcompile.notebook.interacting import Interaction


def program(x: torch.Tensor) -> torch.Tensor:
    return (x.exp() * 2).sum(-1)


def inputs(rows: int) -> torch.Tensor:
    return torch.randn(rows, 32)


def interaction(**given: object) -> Interaction:
    settings = {"sizes": {"rows": (8, 64)}, "budget": 0.02, **given}
    return nbcompile.interact(program, inputs, **settings)  # type: ignore[arg-type]


def test_every_control_changes_what_is_compiled() -> None:
    found = interaction()
    assert found.record is not None and len(found.record.kernels) == 1
    found.controls["fuse"].value = False
    assert found.record is not None and len(found.record.kernels) == 3
    found.controls["dtype"].value = "float64"
    assert found.record is not None
    assert {node.dtype for node in found.record.graphs[0].nodes if node.kind == "compute"} == {"float64"}
    found.controls["rows"].value = 64
    assert found.record is not None
    assert (64, 32) in {node.shape for node in found.record.graphs[0].nodes}
    found.controls["backend"].value = "aot_eager"
    assert found.record is not None and found.record.backend == "aot_eager"
    assert [outcome.status for outcome in found.outcomes.values()] == ["ok"] * 5


@pytest.mark.nightly
def test_what_was_chosen_before_is_there_at_once() -> None:
    found = interaction()
    first = found.record
    found.controls["fuse"].value = False
    found.controls["fuse"].value = True
    assert found.record is first and len(found.outcomes) == 2


def test_the_button_measures_again_and_by_hand_only_it_does() -> None:
    found = interaction(manual=True)
    assert found.record is None and not found.outcomes and "not compiled yet" in found.text
    with pytest.raises(MeasureError, match="nothing was measured"):
        found.figure()
    found.controls["run"].click()
    first = found.record
    assert first is not None
    found.controls["run"].click()
    assert found.record is not first and len(found.outcomes) == 1


@pytest.mark.nightly
def test_what_fails_says_so_and_the_controls_go_on() -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float64:
            raise ValueError("not in double <b>")
        return x + 1

    found = nbcompile.interact(picky, torch.ones(8), budget=0.02, dtypes=("as it is", "float64"))
    found.controls["dtype"].value = "float64"
    assert "not in double &lt;b&gt;" in found.text and found.record is None
    assert "failed" in found.figure().layout.annotations[0].text
    found.controls["dtype"].value = "as it is"
    assert found.record is not None


def test_modes_are_those_of_the_backend() -> None:
    found = interaction(manual=True)
    assert "max-autotune" in found.controls["mode"].options
    found.controls["mode"].value = "max-autotune"
    found.controls["backend"].value = "aot_eager"
    assert found.controls["mode"].options == ("default",) and found.controls["fuse"].disabled
    found.controls["backend"].value = "eager"
    found.controls["run"].click()
    assert "a call" in found.text


@pytest.mark.nightly
def test_the_chart_has_a_pair_of_bars_for_each_choice() -> None:
    found = interaction()
    found.controls["fuse"].value = False
    eager, chosen = found.figure().data
    records = [outcome.record for outcome in found.outcomes.values()]
    assert list(chosen.x) == [record.measurements[-1].median for record in records if record is not None]
    assert list(eager.x) == [record.measurements[0].median for record in records if record is not None]
    assert [name.startswith("▸") for name in found.figure().layout.yaxis.ticktext] == [False, True]


def test_the_record_opens_in_the_explorer() -> None:
    found = interaction()
    found.controls["open"].click()
    (shown,) = found.place.children
    assert shown.payload["id"] == found.record.id if found.record else False


def test_what_cannot_be_meant_is_refused_before_anything_runs() -> None:
    with pytest.raises(OptionError, match="Did you mean inductor"):
        interaction(backends=("nbcompile", "inducter"))
    with pytest.raises(OptionError, match="no such parameter"):
        interaction(sizes={"C": (1, 2)})
    with pytest.raises(OptionError, match="float31"):
        interaction(dtypes=("float31",))
    with pytest.raises(OptionError, match="function that makes"):
        nbcompile.interact(program, torch.ones(2, 2), sizes={"rows": (1,)})
