"""Compile gates: the resources and instructions of a compiled kernel, read from its assembly. No GPU is needed.

A kernel passes if it spills no register, uses no scratch memory, fits into LDS, contains the instructions that its
variant promises, and has no compare-and-swap loop in place of an atomic of the hardware.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eqsat.gpu.build.compilers import amd_assembly
from eqsat.gpu.build.nvrtc import nvidia_code
from eqsat.gpu.families.base import Kernel
from eqsat.gpu.table.targets import Target

_REGISTERS_A_LANE = {64: 512, 32: 1536}
"""Vector registers of one SIMD lane: CDNA2 and later ISA guides; RDNA3 and RDNA4 ISA guides (wave 32)."""

_MOST_WAVES = {64: 8, 32: 16}
"""Waves that a SIMD holds at most: the same sources."""

_REGISTER_BLOCK = {64: 8, 32: 24}
"""Granularity of register allocation."""

_SM_REGISTERS, _SM_WARPS = 65536, 64
"""Of a multiprocessor, compute capability 8.0 and 9.0: CUDA C++ Programming Guide, technical specifications."""


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one compiled kernel.

    Attributes:
        registers: vector registers of a lane, accumulation registers included; `scalar` ones of a wave (AMD).
        lds, scratch: bytes of a block, static and given by the launch, and of a lane.
        spills: registers moved to memory.
        waves: that a SIMD (AMD) or a multiprocessor's scheduler (NVIDIA) can hold, of the most that it could.
    """

    entry: str
    target: str
    registers: int
    scalar: int
    lds: int
    scratch: int
    spills: int
    waves: int
    most_waves: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a gate: `faults` is empty for a kernel that passes."""

    resources: Resources
    faults: tuple[str, ...]


def gate(source: str, kernels: Iterable[Kernel], target: Target) -> list[Verdict]:
    """Compile a text that holds these kernels for a target, and judge each.

    Raises:
        CompileFailed: it does not compile.
        InputError: no compiler for the target is installed.
    """
    if target.maker == "amd":
        text = amd_assembly(source, target)
        return [_judge(_amd_resources(text, k, target), _amd_body(text, k.entry), k, target) for k in kernels]
    code = nvidia_code(source, target)
    return [
        _judge(_nvidia_resources(code.log, k, target), _ptx_body(code.ptx, k.entry), k, target, _waits(code.log, k))
        for k in kernels
    ]


def judged(kernels: Mapping[str, Kernel], target: Target) -> dict[str, tuple[Kernel, Verdict]]:
    """Kernels by name, compiled and judged. Raises as `gate`.

    They are one text, and another where launches give LDS: its alignment would be that of all kernels of the text.
    """
    distinct = {k.entry: k for k in kernels.values()}
    by_entry: dict[str, Verdict] = {}
    for at_launch in (False, True):
        alike = [k for k in distinct.values() if (k.launch_lds > 0) == at_launch]
        if alike:
            found = gate("\n".join(k.source for k in alike), alike, target)
            by_entry |= {k.entry: verdict for k, verdict in zip(alike, found, strict=True)}
    return {name: (k, by_entry[k.entry]) for name, k in kernels.items()}


def _waits(log: str, kernel: Kernel) -> list[str]:
    """Complaints of ptxas that products of warpgroups, which should run on, are waited for."""
    lines = [line for line in log.splitlines() if "wgmma" in line and f"'{kernel.entry}'" in line]
    return [line.split(") ", 1)[-1] for line in lines if "serialized" in line or "injected" in line]


def _judge(r: Resources, body: str, kernel: Kernel, target: Target, complaints: Sequence[str] = ()) -> Verdict:
    faults = [*complaints]
    if r.spills:
        faults.append(f"{r.spills} registers spilled")
    if r.scratch:
        faults.append(f"{r.scratch} bytes of scratch")
    most = target.most_lds_bytes if kernel.launch_lds else target.lds_bytes
    if r.lds > most:
        faults.append(f"{r.lds} bytes of LDS, a block has {most}")
    faults += [f"no {claim} in its code" for claim in kernel.claims if claim not in body]
    if "cmpswap" in body or "atom.global.cas" in body:
        faults.append("an atomic became a compare-and-swap loop")
    return Verdict(r, tuple(faults))


def _amd_body(text: str, entry: str) -> str:
    start = text.index(f"\n{entry}:")
    return text[start : text.index(f".size\t{entry},", start)]


def _amd_resources(text: str, kernel: Kernel, target: Target) -> Resources:
    metadata = text[text.index(".amdgpu_metadata") :]
    entry = kernel.entry
    ours = next(part for part in re.split(r"\n  - ", metadata) if re.search(rf"\.name:\s+{entry}\n", part))

    def field(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", ours)
        return int(found[1]) if found else 0

    registers = field("vgpr_count")  # on gfx90a and later it counts accumulation registers too
    lds = field("group_segment_fixed_size")
    block = _REGISTER_BLOCK[target.wave]
    by_registers = _REGISTERS_A_LANE[target.wave] // max(block, -(-registers // block) * block)
    simds = 4 if target.wave == 64 else 2
    waves_of_block = max(1, kernel.threads // target.wave)
    blocks = target.unit_lds_bytes // lds if lds else 64
    waves = min(_MOST_WAVES[target.wave], by_registers, max(1, blocks * waves_of_block // simds))
    return Resources(
        entry=entry,
        target=target.arch,
        registers=registers,
        scalar=field("sgpr_count"),
        lds=lds,
        scratch=field("private_segment_fixed_size"),
        spills=field("vgpr_spill_count") + field("sgpr_spill_count"),
        waves=waves,
        most_waves=_MOST_WAVES[target.wave],
    )


def _ptx_body(ptx: str, entry: str) -> str:
    start = ptx.index(f".entry {entry}(")
    return ptx[start : ptx.find("\n}", start)]


def _nvidia_resources(log: str, kernel: Kernel, target: Target) -> Resources:
    start = log.index(f"Compiling entry function '{kernel.entry}'")
    end = log.find("Compiling entry function", start + 1)
    ours = log[start : end if end > 0 else len(log)]

    def number(pattern: str) -> int:
        found = re.search(pattern, ours)
        return int(found[1]) if found else 0

    registers, lds = number(r"Used (\d+) registers"), number(r"(\d+) bytes smem") + kernel.launch_lds
    warps = kernel.threads // 32
    blocks = min(
        _SM_REGISTERS // (max(8, -(-registers // 8) * 8) * kernel.threads),
        target.unit_lds_bytes // lds if lds else _SM_WARPS,
        _SM_WARPS // warps,
    )
    return Resources(
        entry=kernel.entry,
        target=target.arch,
        registers=registers,
        scalar=0,
        lds=lds,
        scratch=number(r"(\d+) bytes stack frame"),
        spills=number(r"(\d+) bytes spill stores"),
        waves=blocks * warps // 4,
        most_waves=_SM_WARPS // 4,
    )
