"""egglog's compiled module, without the Python package around it.

`import egglog.bindings` runs `egglog/__init__.py` first. That loads a language of its own, a formatter of Python and
OpenTelemetry: as long as a worker takes to load all rules, and nothing here uses them.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING

_NAME = "egglog.bindings"


def _compiled() -> ModuleType:
    """The module under its own name, so that a later `import egglog` finds this one."""
    if _NAME not in sys.modules:
        package = importlib.util.find_spec("egglog")
        folders = None if package is None else package.submodule_search_locations
        spec = importlib.machinery.PathFinder.find_spec(_NAME, folders)
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"No module named {_NAME!r}", name=_NAME)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[_NAME] = module
    return sys.modules[_NAME]


if TYPE_CHECKING:
    import egglog.bindings as egg
else:
    egg = _compiled()
