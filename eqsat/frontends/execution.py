"""Runtimes that execute model files. A device whose programs run in one of them names it in its row.

A runtime is a row of `RUNTIMES`: its name, and how it loads a file. Commands and the pipeline measure through this
interface alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from eqsat.base.numerics import Array
from eqsat.errors import EqsatError, InputError, one_line, unknown

Session = Callable[[Mapping[str, Array]], Sequence[Array]]
"""A loaded model: from inputs by name (those that it lacks are ignored) to outputs in order."""


class RuntimeRefuses(EqsatError):
    """A runtime that cannot load or run a file, in its own words."""


class Runtime(Protocol):
    """What executes model files.

    Attributes:
        name, version: as in reports.
    """

    name: str
    version: str

    def load(self, file: str | os.PathLike[str], threads: int) -> Session:
        """The model in a file, with all optimisations of the runtime itself, on so many threads.

        Raises:
            RuntimeRefuses: the file cannot be loaded. Its session raises it where inputs do not suit.
        """
        ...


class OnnxRuntime:
    """onnxruntime on the CPU."""

    name = "onnxruntime"

    def __init__(self) -> None:
        import onnxruntime

        self._library: Any = onnxruntime
        self.version: str = onnxruntime.__version__
        own = vars(self._library.capi.onnxruntime_pybind11_state).values()
        found = (x for x in own if isinstance(x, type) and issubclass(x, Exception))
        self._errors: tuple[type[Exception], ...] = (*found, RuntimeError, ValueError)
        """What it raises for a file that it cannot load or run: types of its own, and two of Python's."""

    def load(self, file: str | os.PathLike[str], threads: int) -> Session:
        options = self._options("ORT_ENABLE_ALL")
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.force_spinning_stop", "1")  # else it slows what runs next
        return self._session(file, options, None)

    def outputs(
        self, file: str | os.PathLike[str], names: Sequence[str], inputs: Mapping[str, Array]
    ) -> Sequence[Array]:
        """The outputs with these names, by the file's own operators: only exact optimisations are on.

        Raises:
            RuntimeRefuses: the file cannot be loaded or run.
        """
        return self._session(file, self._options("ORT_ENABLE_BASIC"), list(names))(inputs)

    def _options(self, level: str) -> Any:
        options = self._library.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(self._library.GraphOptimizationLevel, level)
        return options

    def _session(self, file: str | os.PathLike[str], options: Any, names: list[str] | None) -> Session:
        """The model in a file, giving the outputs with these names, by default all."""
        with self._refusing():
            session = self._library.InferenceSession(os.fspath(file), options, providers=["CPUExecutionProvider"])
        taken = {entry.name for entry in session.get_inputs()}

        def run(inputs: Mapping[str, Array]) -> Sequence[Array]:
            with self._refusing():
                return session.run(names, {name: array for name, array in inputs.items() if name in taken})

        return run

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise RuntimeRefuses(one_line(str(error))) from error


RUNTIMES: dict[str, Callable[[], Runtime]] = {OnnxRuntime.name: OnnxRuntime}
"""Every runtime, by the name in rows of devices; making one imports it."""


def runtime(name: str) -> Runtime | None:
    """The runtime of this name; None if it is not installed.

    Raises:
        InputError: there is no such runtime.
    """
    if name not in RUNTIMES:
        raise unknown("runtime", name, RUNTIMES)
    try:
        return RUNTIMES[name]()
    except ImportError:
        return None


def installed(name: str) -> Runtime:
    """The runtime of this name.

    Raises:
        InputError: there is no such runtime, or it is not installed.
    """
    found = runtime(name)
    if found is None:
        raise InputError(f"{name} is not installed here: pip install {name}")
    return found
