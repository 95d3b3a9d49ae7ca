"""The objective: predicted time, peak memory, or both in some proportion."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.base.arguments import real, shown
from eqsat.errors import InputError

_FORMS = 'latency, memory, mix:W with 0 <= W <= 1, or {"latency": a, "memory": b}'


@dataclass(frozen=True, slots=True)
class Objective:
    """Weights of time and of peak memory, each relative to that of the program as written.

    So the value of the program as written is `latency + memory`, and half of both gives half of that.
    """

    latency: float = 1.0
    memory: float = 0.0

    @staticmethod
    def of(given: str | Mapping[str, float] | Objective) -> Objective:
        """Read `latency`, `memory`, `mix:W` (W is the weight of memory, time has the rest) or the weights themselves.

        Raises:
            InputError: it is none of these, a weight is negative or not finite, or both are zero.
        """
        if isinstance(given, Objective):
            return given
        if isinstance(given, str):
            kind, _, share = given.partition(":")
            try:
                weight = {"latency": 0.0, "memory": 1.0}[kind] if not share else float(share)
            except (KeyError, ValueError):
                weight = float("nan")
            if not 0 <= weight <= 1 or (share and kind != "mix"):
                raise InputError(f"objective {given!r}: expected {_FORMS}")
            return Objective(1 - weight, weight)
        if not isinstance(given, Mapping):
            raise InputError(f"objective {shown(given)}: expected {_FORMS}")
        unknown = sorted(set(map(str, given)) - {"latency", "memory"})
        weights = [w for w in (real(given.get(name, 0.0)) for name in ("latency", "memory")) if w is not None]
        if unknown or len(weights) < 2 or not all(0 <= w <= sys.float_info.max for w in weights) or not any(weights):
            raise InputError(f"objective {shown(dict(given))}: expected {_FORMS}, weights at least 0 and not both 0")
        return Objective(*weights)

    def value(self, cost: float, peak: float, written_cost: float, written_peak: float) -> float:
        """The value of a plan: its weighted cost and peak, relative to those of the program as written.

        If the program as written takes 0, the amount itself counts.
        """
        return self.latency * cost / max(1, written_cost) + self.memory * peak / max(1, written_peak)
