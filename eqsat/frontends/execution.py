"""Runtimes that execute model files. A device whose programs run in one of them names it in its row.

A runtime is a row of `RUNTIMES`: its name, and how it loads a file. Commands and the pipeline measure through this
interface alone.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from eqsat.base.interrupt import ended_by
from eqsat.base.numerics import Array
from eqsat.errors import EqsatError, InputError, one_line, unknown
from eqsat.frontends.onnx.file.load import TENSOR_TYPE

if TYPE_CHECKING:
    from onnx import ModelProto

Session = Callable[[Mapping[str, Array]], Sequence[Array]]
"""A loaded model: maps inputs by name to outputs in order. Inputs that the model does not have are ignored."""


class RuntimeRefuses(EqsatError):
    """A runtime cannot load or run a file; the message is its own."""


class RuntimeLacksMemory(RuntimeRefuses):
    """It could with more memory."""


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


PROFILED_RUNS = 10

_KERNEL = "_kernel_time"

_LACKS_MEMORY = ("Failed to allocate memory", "bad_alloc", "bad allocation")
"""How onnxruntime's messages say so: it has no type of error for that."""

_DTYPES = {name.removeprefix("tensor(").removesuffix(")"): dtype for dtype, name in TENSOR_TYPE.items()}

Shaped = tuple[str, tuple[int, ...]]
"""The dtype and the shape of a value."""


class NodeTime(NamedTuple):
    """The time of a node in a profile.

    Attributes:
        us: microseconds, the 10th percentile of its runs.
        inputs, outputs: the arrays that it read and made, without the optional ones that the node omits.
    """

    us: float
    inputs: tuple[Shaped, ...]
    outputs: tuple[Shaped, ...]


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

    def plainly(self, file: str | os.PathLike[str], names: Sequence[str]) -> Session:
        """The model in a file, giving the outputs with these names, with exact optimisations alone.

        Raises:
            RuntimeRefuses: the file cannot be loaded. Its session raises it where inputs do not suit.
        """
        return self._session(file, self._options("ORT_ENABLE_BASIC"), list(names))

    def profile(self, model: ModelProto, inputs: Mapping[str, Array]) -> dict[str, NodeTime]:
        """The times of a model's nodes by name, on one thread, without any optimisation of the runtime.

        Raises:
            RuntimeRefuses: the model cannot be loaded or run.
        """
        options = self._options("ORT_DISABLE_ALL")
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        with tempfile.TemporaryDirectory(prefix="eqsat-") as folder:
            options.profile_file_prefix = os.path.join(folder, "profile")
            with self._refusing():
                session = self._library.InferenceSession(model.SerializeToString(), options)
                taken = {entry.name for entry in session.get_inputs()}
                for _ in range(PROFILED_RUNS):
                    session.run(None, {name: array for name, array in inputs.items() if name in taken})
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        nodes: dict[str, list[Any]] = {}
        for event in events:
            if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
                nodes.setdefault(event["name"].removesuffix(_KERNEL), []).append(event)
        return {
            name: NodeTime(
                float(sorted(event["dur"] for event in found)[len(found) // 10]),
                *(_shapes(found[0]["args"][key]) for key in ("input_type_shape", "output_type_shape")),
            )
            for name, found in nodes.items()
        }

    def _options(self, level: str) -> Any:
        options = self._library.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(self._library.GraphOptimizationLevel, level)
        return options

    def _session(self, file: str | os.PathLike[str], options: Any, names: list[str] | None) -> Session:
        """The model in a file, giving the outputs with these names, by default all."""
        path = os.fsdecode(file)
        try:
            path.encode()
        except UnicodeEncodeError:
            raise RuntimeRefuses(f"the name of {path!a} is not UTF-8, which {self.name} asks for") from None
        with self._refusing():
            session = self._library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        taken = {entry.name for entry in session.get_inputs()}

        def run(inputs: Mapping[str, Array]) -> Sequence[Array]:
            own = self._library.RunOptions()
            own.log_severity_level = 4
            with self._refusing(), ended_by(lambda: setattr(own, "terminate", True)):
                return session.run(names, {name: array for name, array in inputs.items() if name in taken}, own)

        return run

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            lacks_memory = any(words in str(error) for words in _LACKS_MEMORY)
            raise (RuntimeLacksMemory if lacks_memory else RuntimeRefuses)(one_line(str(error))) from error


def _shapes(entries: Sequence[Mapping[str, Sequence[int]]]) -> tuple[Shaped, ...]:
    return tuple((_DTYPES[kind], tuple(shape)) for entry in entries for kind, shape in entry.items())


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
