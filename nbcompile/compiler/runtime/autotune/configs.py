"""Candidates of a search: what they are called, which lie beside a good one, and which can run at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

from nbcompile.compiler.runtime.gpu.compile import Built
from nbcompile.compiler.runtime.gpu.grid import cut_by, grid_of
from nbcompile.compiler.stages import Config, Launch
from nbcompile.targets import Target

MOST_WARPS = 32
MOST_STAGES = 5


def config_text(config: Config) -> str:
    """``XBLOCK 1024, 4 warps``: the same text for the same config, and another for another."""
    words = [f"{name} {value}" for name, value in sorted(config.constants.items())]
    words.append(f"{config.warps} warp{'s' if config.warps != 1 else ''}")
    if config.stages != 1:
        words.append(f"{config.stages} stages")
    for item in fields(config):  # what else a config may say, where it says it
        value = getattr(config, item.name)
        if item.name not in ("constants", "warps", "stages") and value != item.default:
            words.append(f"{value} {item.name}")
    return ", ".join(words)


def free_constants(launch: Launch) -> dict[str, tuple[int, int]]:
    """The constants that a search may change, each with the least and greatest value listed: those in which
    the listed configs differ. What is the same in all of them (a row's whole length, blocks that a
    workspace is laid out by) is part of the kernel."""
    found: dict[str, tuple[int, int]] = {}
    for name in launch.configs[0].constants:
        values = [config.constants[name] for config in launch.configs if name in config.constants]
        if len(values) == len(launch.configs) and len(set(values)) > 1:
            found[name] = min(values), max(values)
    return found


def neighbours(config: Config, launch: Launch, *, pipelined: bool = False) -> list[Config]:
    """Configs one step from ``config``: half or twice the warps or a free block, one more or less of
    ``STAGES`` (blocks of a walk that are under way at once), or where products are ``pipelined`` of Triton's
    own stages.

    A kernel has no mask where every listed block divides an extent, so a block that is no divisor of the
    greatest listed is proposed only where the grid tells the extent, and it divides that too or not even
    the greatest does.
    """
    found = []
    lanes = math.prod(value for name, value in config.constants.items() if name.endswith("BLOCK"))
    halved, doubled = max(config.warps // 2, 1), min(config.warps * 2, MOST_WARPS)
    if halved < config.warps:
        found.append(replace(config, warps=halved))
    if config.warps < doubled and doubled * 32 <= lanes:
        found.append(replace(config, warps=doubled))
    for name, (least, greatest) in free_constants(launch).items():
        value = config.constants[name]
        for other in (value * 2, value // 2) if name.endswith("BLOCK") else ():
            if max(least // 2, 2) <= other <= 4 * greatest and _allowed(launch, name, other, greatest):
                changed = replace(config, constants={**config.constants, name: other})
                # with as many warps, and with as many elements a thread as before
                found += [changed, replace(changed, warps=halved if other < value else doubled)]
    if "STAGES" in config.constants:  # it changes when data are loaded, never what is computed
        for stages in _beside(config.constants["STAGES"]):
            found.append(replace(config, constants={**config.constants, "STAGES": stages}))
    if pipelined:
        found += [replace(config, stages=stages) for stages in _beside(config.stages)]
    return list({config_text(item): item for item in found}.values())


def _allowed(launch: Launch, name: str, value: int, greatest: int) -> bool:
    """Whether the kernel's masks are right for this value of a block."""
    if greatest % value == 0:
        return True
    for extent in cut_by(launch, name):
        # a dynamic size is never known to be divided
        return extent is None or extent % value == 0 or extent % greatest != 0
    return False


def _beside(stages: int) -> list[int]:
    return [item for item in (stages + 1, stages - 1) if 1 <= item <= MOST_STAGES]


def misfit(
    launch: Launch, built: Built, chip: Target, sizes: Mapping[str, int], resident: Callable[[Built], int]
) -> str:
    """Why a compiled candidate cannot run on ``chip``, in a few words; empty if it can. ``resident`` tells
    how many of its programs fit on the chip at once."""
    if chip.shared_bytes and built.shared_bytes > chip.shared_bytes:
        return f"does not fit: {built.shared_bytes} bytes of shared memory"
    if built.warps * chip.warp > 1024:
        return f"does not fit: {built.warps * chip.warp} threads a program"
    if launch.together:
        programs, most = math.prod(grid_of(launch, built.config, sizes)), resident(built)
        if programs > most:
            return f"does not fit: {programs} programs at once, room for {most}"
    return ""


def spills(built: Built) -> str:
    """``spills 128 bytes``, or nothing."""
    return f"spills {built.spill_bytes} bytes" if built.spill_bytes else ""
