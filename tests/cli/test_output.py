"""Tables as commands print them."""

from __future__ import annotations

import io
from unittest import mock

from rich.console import Console
from rich.table import Table

from eqsat.cli.shared.output import print_table


def printed_table(columns: list[str], rows: list[list[str]], width: int, words: int = 1) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    print_table(console, "Title", columns, rows, words)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_words_stand_on_the_left_and_figures_on_the_right() -> None:
    assert printed_table(["name", "family", "times"], [["gemm", "contraction", "12"], ["sum", "row", "3"]], 80, 2) == [
        "Title",
        "                            ",
        " name   family        times ",
        " ────────────────────────── ",
        " gemm   contraction      12 ",
        " sum    row               3 ",
        "                            ",
    ]


def test_the_widest_columns_are_folded_to_the_width() -> None:
    row = ["short", "add, mul, sum over 256, broadcast_to", "a_name_that_is_longer_than_its_column"]
    lines = printed_table(["a", "b", "c"], [row], 40, 3)
    assert max(map(len, lines)) == 40
    assert lines[4:-1] == [
        " short   add, mul, sum   a_name_that_is ",
        "         over 256,       _longer_than_i ",
        "         broadcast_to    ts_column      ",
    ]


def test_characters_of_two_places_and_controls_keep_the_table_straight() -> None:
    lines = printed_table(["a", "b"], [["漢字", "1"], ["x\n", "2"]], 40)
    assert lines[4:-1] == [" 漢字   1 ", " x\\n    2 "]


def test_long_tables_take_none_of_richs_time() -> None:
    with mock.patch.object(Table, "__rich_console__", side_effect=AssertionError("a millisecond a row")):
        assert len(printed_table(["a", "b"], [["x", "1"]] * 1000, 80)) == 1005
