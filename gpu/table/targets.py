"""The instruction sets: facts about chips that kernel texts depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eqsat.errors import unknown

Maker = Literal["amd", "nvidia"]

_HALVES = frozenset({"float16", "bfloat16"})
_HALVES_AND_FLOAT = _HALVES | {"float32"}


@dataclass(frozen=True, slots=True)
class Target:
    """One instruction set.

    Attributes:
        arch: the compiler's name, 'gfx942' or 'sm_90'.
        wave: lanes that run in lock step.
        matrix: EQ_MATRIX of templates/matrix_units.h, which the SIMT checker emulates.
        matrix_dtypes: operand types that the matrix unit multiplies with float sums.
        matrix_instruction: what its assembly text shows.
        lds_bytes: static LDS that one block may take, and `unit_lds_bytes` what all blocks of a compute unit share.
        launch_lds_bytes: LDS that a block may take if its launch asks for it; 0 where that is no more than static LDS.
        warpgroups: the compiler's name of the instruction set with products of four waves whose operands are in LDS,
            'sm_90a'; '' where there are none.
        wide_fragments: edges of the matrix unit's fragments beside 16.
        lane_loads: bytes that a lane of a wave can load into LDS without registers; longest first.
        max_threads: threads of a block.
    """

    arch: str
    maker: Maker
    wave: int
    matrix: int
    matrix_dtypes: frozenset[str]
    matrix_instruction: str
    lds_bytes: int
    unit_lds_bytes: int
    wide_fragments: tuple[int, ...] = ()
    lane_loads: tuple[int, ...] = ()
    launch_lds_bytes: int = 0
    warpgroups: str = ""
    max_threads: int = 1024

    @property
    def copies(self) -> bool:
        """Whether memory can be copied into LDS while the block computes: cp.async, from compute capability 8.0 on."""
        return self.maker == "nvidia"

    @property
    def most_lds_bytes(self) -> int:
        """LDS that one block may take, static or given by the launch."""
        return max(self.lds_bytes, self.launch_lds_bytes)

    @property
    def compiled_as(self) -> str:
        """What the compiler is told: the instruction set with everything that only this one has."""
        return self.warpgroups or self.arch

    @property
    def simt_defines(self) -> tuple[str, ...]:
        """The macros under which the SIMT checker behaves like this target."""
        return ("-DEQ_SIMT", f"-DEQ_WAVE={self.wave}", f"-DEQ_MATRIX={self.matrix}")


# LDS: CDNA3 and RDNA ISA guides (64 KiB a work-group and a compute unit); CDNA4 ISA guide (160 KiB, of which static
# allocation by plain clang takes 64 KiB); CUDA C++ Programming Guide, technical specifications (48 KiB static; 164 and
# 228 KiB a multiprocessor, 1 KiB of which each block takes for itself; 163 and 227 KiB if the launch asks for them).
# Loads into LDS: global_load_lds_dword of the CDNA3 ISA guide, and global_load_lds_dwordx4 of CDNA4's.
# Products of four waves: wgmma of the PTX ISA, which only code for sm_90a may hold.
_KIB = 1024
TARGETS: dict[str, Target] = {
    t.arch: t
    for t in (
        Target("gfx90a", "amd", 64, 90, _HALVES_AND_FLOAT, "v_mfma", 64 * _KIB, 64 * _KIB, (32,)),
        Target("gfx942", "amd", 64, 90, _HALVES_AND_FLOAT, "v_mfma", 64 * _KIB, 64 * _KIB, (32,), (4,)),
        Target("gfx950", "amd", 64, 950, _HALVES_AND_FLOAT, "v_mfma", 64 * _KIB, 160 * _KIB, (32,), (16, 4)),
        Target("gfx1100", "amd", 32, 11, _HALVES, "v_wmma", 64 * _KIB, 64 * _KIB),
        Target("gfx1201", "amd", 32, 12, _HALVES, "v_wmma", 64 * _KIB, 64 * _KIB),
        Target("sm_80", "nvidia", 32, 80, _HALVES, "mma.sync", 48 * _KIB, 163 * _KIB,
               launch_lds_bytes=163 * _KIB),
        Target("sm_90", "nvidia", 32, 80, _HALVES, "mma.sync", 48 * _KIB, 227 * _KIB,
               launch_lds_bytes=227 * _KIB, warpgroups="sm_90a"),
    )
}  # fmt: skip
"""Every target that kernels are compiled and gated for."""


def target(arch: str) -> Target:
    """The target named `arch`.

    Raises:
        InputError: there is none of that name.
    """
    try:
        return TARGETS[arch]
    except KeyError:
        raise unknown("kernel target", arch, TARGETS) from None
