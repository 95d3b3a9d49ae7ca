"""Output of commands: JSON, tables, and figures in readable units."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.base.files import Target, check_outputs, keep_pipe, write_text
from eqsat.errors import InputError, escaped

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 140
"""Width in characters of tables that are not printed to a terminal: wide enough that rows do not wrap."""


def check_files(
    models: Mapping[str, Path | None],
    outputs: Mapping[str, Target | None],
    others: Mapping[str, Target | None] = {},
    perhaps: Mapping[str, Target | None] = {},
) -> None:
    """As `eqsat.base.files.check_outputs`, with the external data files of models as further inputs.

    Inputs that are pipes can be read more than once from then on.

    Args:
        models, others: the files that a command reads, by their names in messages.
        outputs, perhaps: the files that it writes.
    """
    inputs: dict[str, Target | None] = {**models, **others}
    for path in inputs.values():
        if path is not None:
            keep_pipe(Path(path))
    if any(path is not None and os.path.isfile(path) for path in [*outputs.values(), *perhaps.values()]):
        from eqsat.frontends.onnx.file.load import external_files

        for name, model in models.items():
            if model is not None and model.is_file():
                inputs |= {f"the data of {name}, {path.name!r}": path for path in external_files(model)}
    check_outputs(inputs, outputs, perhaps)


def data_of(models: Mapping[str, Path | None]) -> dict[str, Target | None]:
    """The files beside models that are to be written which large ones keep their constants in."""
    return {f"the data of {name}": f"{path}.data" for name, path in models.items() if path is not None}


def device_file(*names: str) -> dict[str, Target | None]:
    """The files that give devices their figures, by their names in messages."""
    return {f"--device {name}": name for name in names if name.endswith(".json")}


def check_kept(
    models: Iterable[Path],
    folder: Path | None,
    names: Sequence[str],
    json_file: str | None,
    others: Mapping[str, Target | None] = {},
    option: str = "--output",
) -> None:
    """As `check_files`, for commands that take models which may be broken, and keep files in a folder.

    Args:
        folder: where files of these names are kept, if anywhere; it exists.
        others: further files that are read, by their names in messages.
        option: gives the folder.
    """
    outputs = {f"{name} in {option}": folder / name for name in names} if folder is not None else {}
    written: dict[str, Target | None] = {**outputs, "--json": json_file}
    inputs = dict(others)
    if any(path is not None and os.path.isfile(path) for path in written.values()):
        from eqsat.frontends.onnx.file.load import files_of

        inputs |= {f"a file of {model}, {path.name!r}": path for model in models for path in files_of(model)}
    check_outputs(inputs, written)


def keep_stdout(files: Mapping[str, Path | None]) -> None:
    """Raises InputError for a file, by its option, that is stdout: the report goes there."""
    for name, path in files.items():
        if path == Path("-"):
            raise InputError(f"{name} -: stdout is for the report; give a file")


def write_json(data: Any, target: str) -> None:
    """Write `data` to the file `target` as one indented JSON document; `-` is stdout.

    The encoder refuses NaN and infinities (`ValueError`), because JSON cannot represent them.
    """
    write_text(target, json.dumps(data, indent=2, allow_nan=False) + "\n")


def answer(data: Any, json_file: str | None) -> bool:
    """Write `data` as JSON if `--json` names a file for it. Returns whether stdout is left for text."""
    if json_file is not None:
        write_json(data, json_file)
    return json_file != "-"


def console(stderr: bool = False) -> Console:
    """A console on stdout (or stderr) that does not wrap tables when piped into a file or another program.

    Where its reader is gone, printing raises BrokenPipeError, as it does without Rich, which would end the process.
    """
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise  # the error that this is called for

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Terminal(file=stream, width=width, highlight=False, markup=False, emoji=False)


NARROWEST, WIDEST = 40, 100
"""Limits on the width of running text, in characters, on any terminal."""


def text_width() -> int:
    """Width of running text in characters: the terminal's width, within a readable range."""
    return max(NARROWEST, min(WIDEST, console().width))


def print_table(
    terminal: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1
) -> None:
    """Print a title and a table; its first `words` columns hold words, the others figures.

    As a table of Rich looks, in a tenth of its time: that one takes a millisecond a row.
    """
    cells = [tuple(map(escaped, row)) for row in rows]
    widths = _fitting([max(map(_width, column)) for column in zip(columns, *cells, strict=True)], terminal.width)
    line = "-" if terminal.options.ascii_only else "─"
    blank, rule = (f" {sign * (sum(widths) + len(_GAP) * (len(widths) - 1))} " for sign in (" ", line))
    head, *body = (_lines(row, widths, words) for row in (columns, *cells))
    terminal.print(escaped(title), blank, sep="\n")
    terminal.print("\n".join(head), style="bold", soft_wrap=True)
    terminal.print("\n".join([rule, *chain.from_iterable(body), blank]), soft_wrap=True)


_GAP = "   "
"""Between two columns."""


def _fitting(widths: Sequence[int], most: int) -> list[int]:
    """Widths of columns in a table of at most so many characters. The widest ones, their share of the gaps with them,
    are narrowed."""
    last = len(widths) - 1
    share = [(i > 0) + (i < last) for i in range(len(widths))]
    found = [width + more for width, more in zip(widths, share, strict=True)]
    while (over := sum(found) + last + 2 - most) > 0 and max(found) > 3:
        widest, second = max(found), max([width for width in found if width < max(found)], default=3)
        at = [i for i, width in enumerate(found) if width == widest]
        for k, i in enumerate(at):
            less = min(widest - second, round(over / (len(at) - k)))
            found[i], over = widest - less, over - less
    return [max(1, width - more) for width, more in zip(found, share, strict=True)]


def _lines(row: Sequence[str], widths: Sequence[int], words: int) -> list[str]:
    """The lines of a row of a table. What is wider than its column goes on below."""
    cells = [[cell] if _width(cell) <= width else _folded(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for parts in zip_longest(*cells, fillvalue=""):
        pads = [" " * (width - _width(part)) for part, width in zip(parts, widths, strict=True)]
        aligned = [x + pad if i < words else pad + x for i, (x, pad) in enumerate(zip(parts, pads, strict=True))]
        lines.append(f" {_GAP.join(aligned)} ")
    return lines


def _width(cell: str) -> int:
    """Characters that a cell takes; some take two."""
    from rich.cells import cell_len

    return len(cell) if cell.isascii() else cell_len(cell)


def _folded(cell: str, width: int) -> list[str]:
    """The lines of a cell, words kept whole where they fit."""
    lines: list[str] = []
    line = ""
    for word in cell.split(" "):
        longer = f"{line} {word}" if line else word
        if _width(longer) <= width:
            line = longer
            continue
        lines += [line] if line else []
        while _width(word) > width:
            most = next(n for n in range(width, 0, -1) if n == 1 or _width(word[:n]) <= width)
            lines.append(word[:most])
            word = word[most:]
        line = word
    return [*lines, line]


def engineering(value: float, unit: str = "") -> str:
    """A figure with four digits and a unit prefix: `engineering(1234567, "B")` is `1.235 MB`."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.99995 * factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}".rstrip()


def times_less(before: float, after: float) -> str:
    """The ratio of `before` to `after`, such as `2.0x`; a dash if it is undefined."""
    if before == after:
        return "1.0x"
    return f"{before / after:.3g}x" if after else "-"


def nearest(name: str, valid: Sequence[str]) -> str:
    """The hint in an error about a wrong name: the nearest valid names, or all of them."""
    import difflib

    close = difflib.get_close_matches(name, valid, n=3, cutoff=0.4)
    return f"did you mean {' or '.join(close)}?" if close else f"valid ones are {', '.join(valid)}"
