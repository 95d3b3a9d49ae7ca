"""Serialized e-graphs: files accepted and refused, error messages, and answers in the file's own names."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from eqsat.errors import CheckFailed, InputError
from eqsat.extract.solver import reduce, signed
from eqsat.extract.solver.problem import Problem, Solution
from eqsat.extract.solver.serialized import SerializedEGraph, answer_cost, extract_file, parse
from support.egraphs import answers, small_problem

# f(x, x) or g(y); y is x or h(y): x is shared, and h(y) is a cycle.
EXAMPLE: dict[str, Any] = {
    "nodes": {
        "f": {"op": "f", "cost": 1.5, "eclass": "top", "children": ["x", "x"]},
        "g": {"op": "g", "cost": 0.25, "eclass": "top", "children": ["y2"]},
        "y1": {"op": "h", "cost": 0.125, "eclass": "y", "children": ["y1"]},
        "y2": {"op": "id", "eclass": "y", "children": ["x"]},
        "x": {"op": "x", "cost": 2, "eclass": "x"},
    },
    "root_eclasses": ["top"],
}


def written(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "egraph.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_an_answer_names_nodes_and_costs_their_sum(tmp_path: Path) -> None:
    answer = extract_file(written(tmp_path, EXAMPLE), 10.0)
    assert answer["choices"] == {"top": "g", "y": "y2", "x": "x"}
    assert (answer["cost"], answer["lower_bound"], answer["gap"], answer["optimal"]) == (3.25, 3.25, 0.0, True)
    assert list(answer) == ["cost", "lower_bound", "gap", "optimal", "seconds", "choices"]


def changed(**nodes: Any) -> dict[str, Any]:
    return {**EXAMPLE, "nodes": {**EXAMPLE["nodes"], **nodes}}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        pytest.param("{", "not JSON", id="broken JSON"),
        pytest.param([1], 'no "nodes" object', id="not an object"),
        pytest.param(
            '{"nodes": {"n": {"eclass": "a"}, "n": {"eclass": "a", "cost": 9}}, "root_eclasses": ["a"]}',
            "'n' is given twice",
            id="a node twice",
        ),
        pytest.param({"nodes": {}}, 'no "root_eclasses"', id="no roots"),
        pytest.param(
            {**EXAMPLE, "root_eclasses": ["nowhere"]}, "root e-class 'nowhere' has no node", id="unknown root"
        ),
        pytest.param(changed(z={"op": "z", "children": []}), "node 'z' has no eclass", id="node without class"),
        pytest.param(changed(z={"eclass": "z", "children": ["w"]}), "children that are no nodes", id="unknown child"),
        pytest.param(changed(x={"eclass": "x", "cost": "2"}), "node 'x' has cost 2", id="cost in words"),
        pytest.param(changed(x={"eclass": "x", "cost": True}), "node 'x' has cost True", id="cost yes"),
        pytest.param(changed(x={"eclass": "x", "cost": 10**400}), "node 'x' has cost 1000", id="cost beyond floats"),
        pytest.param(
            '{"nodes": {"n": {"eclass": "a", "cost": ' + "9" * 5000 + '}}, "root_eclasses": ["a"]}',
            "not JSON",
            id="cost of thousands of digits",
        ),
        pytest.param(
            changed(x={"eclass": "x", "cost": 1e308}, f={"eclass": "top", "cost": 1e308}), "add up to more", id="sum"
        ),
        pytest.param(
            changed(x={"eclass": "x", "cost": 1e300}, f={"eclass": "top", "cost": 1e-10}),
            "costs from 1e-10 to 1e+300 cannot be added up exactly",
            id="costs too far apart",
        ),
        pytest.param(
            changed(x={"eclass": "x", "cost": 5e-324}), "costs from 4.94066e-324 to", id="a cost next to nothing"
        ),
        pytest.param("[" * 100_000, "not JSON", id="nested for ever"),
        pytest.param("", "not JSON", id="an empty file"),
        pytest.param({**EXAMPLE, "root_eclasses": "top"}, 'no "root_eclasses"', id="roots no list"),
        pytest.param({**EXAMPLE, "nodes": []}, 'no "nodes" object', id="nodes no object"),
        pytest.param(changed(x={"eclass": ["x"]}), "node 'x' has no eclass", id="class no name"),
        pytest.param(changed(f={"eclass": "top", "children": "x"}), "give a list of nodes", id="children no list"),
        pytest.param(
            changed(f={"eclass": "top", "children": [["x"]]}), "children that are no nodes", id="child no name"
        ),
        pytest.param(changed(x={"eclass": "x", "cost": float("inf")}), "costs are finite", id="infinite cost"),
        pytest.param(
            changed(x={"eclass": "x", "children": ["f"]}), "'top' has no acyclic derivation", id="only cycles"
        ),
        pytest.param(
            changed(x={"eclass": "x", "cost": -1, "children": ["f"]}), "'top' has no acyclic", id="a negative cycle"
        ),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, data: object, complaint: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(InputError) as error:
        extract_file(path, 10.0)
    assert complaint in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: no such file"):
        extract_file(tmp_path / "none.json")


def test_negative_costs_in_every_answer_are_shifted_away(tmp_path: Path) -> None:
    """Class x is in every answer, so its costs may be negative: the cheapest of its nodes still wins."""
    data = changed(x={"eclass": "x", "cost": 0.5}, w={"eclass": "x", "cost": -4.0})
    answer = extract_file(written(tmp_path, data), 10.0)
    assert answer["choices"] == {"top": "f", "x": "w"} or answer["choices"] == {"top": "g", "y": "y2", "x": "w"}
    assert (answer["cost"], answer["lower_bound"], answer["optimal"]) == (-2.75, -2.75, True)


@pytest.mark.parametrize("few", [0, signed.FEW], ids=["by branch and bound", "by trying all"])
def test_negative_costs_agree_with_brute_force(few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that pays is used where something that is used needs it, and only there."""
    monkeypatch.setattr(signed, "FEW", few)
    rng = random.Random(0)
    paying = 0
    for seed in range(150):
        problem = small_problem(seed)
        costs = [rng.choice([-3, -1, 0, 1, 2]) for _ in problem.node_cost]
        first = [m[0] for m in problem.members()]
        path = written(tmp_path, named(problem, costs, first))
        least = min((sum(costs[i] for i in nodes) for nodes in answers(problem)), default=None)
        if least is None:
            with pytest.raises(InputError, match="no acyclic derivation"):
                extract_file(path, 10.0)
            continue
        answer = extract_file(path, 10.0)
        assert (answer["cost"], answer["lower_bound"], answer["optimal"]) == (least, least, True)
        paying += parse(json.loads(path.read_text())).signed is not None
    assert paying > 40


def test_small_costs_beside_large_ones_are_proven(tmp_path: Path) -> None:
    """Floats lose what is a hundred millionth of the largest cost; nothing needs class z."""
    data = changed(x={"eclass": "x", "cost": 1e15}, y={"eclass": "y", "cost": -1}, z={"eclass": "z", "cost": -1e15})
    data["root_eclasses"] = ["top"]
    answer = extract_file(written(tmp_path, data), 10.0)
    assert (answer["optimal"], answer["gap"]) == (True, 0.0)
    assert parse({"nodes": data["nodes"], "root_eclasses": ["x"]}).signed is None


def test_with_negative_costs_an_answer_comes_in_time_though_the_rows_take_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def endless(model: Any) -> None:
        while True:
            time.sleep(0.01)

    monkeypatch.setattr(signed, "FEW", 0)
    monkeypatch.setattr(signed._Model, "_need", endless)
    problem = next(p for p in map(small_problem, range(100)) if answers(p))
    costs = [-1] * len(problem.node_cost)
    begun = time.monotonic()
    solution = signed.solve_signed(problem, costs, 1.0)
    assert time.monotonic() - begun < 1.5
    assert solution.cost == sum(costs[i] for i in solution.choice.values())
    assert solution.lower_bound <= solution.cost


def test_no_gap_is_given_as_a_share_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"nodes": {"x": {"eclass": "x", "cost": 0, "children": []}}, "root_eclasses": ["x"]}
    monkeypatch.setattr(SerializedEGraph, "solve", lambda *_: Solution({0: 0}, 0, -1, False, 0.0))
    answer = extract_file(written(tmp_path, data), 10.0)
    assert (answer["cost"], answer["lower_bound"], answer["gap"]) == (0.0, -1.0, None)


def test_negative_costs_of_more_classes_than_are_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is too large, or short of time, only the roots are known to be in every answer."""
    data = changed(x={"eclass": "x", "cost": -2}, f={"eclass": "top", "cost": -1, "children": ["x"]})
    in_time = extract_file(written(tmp_path, data), 10.0)
    monkeypatch.setattr(reduce, "REQ_BYTES", 0)
    large = extract_file(written(tmp_path, data), 10.0)
    assert in_time["cost"] == large["cost"] == -3.0
    assert in_time["choices"] == large["choices"]


def test_no_time_is_spent_on_shifting_costs_after_the_deadline() -> None:
    nodes = {f"n{i}": {"eclass": str(i), "cost": -1, "children": [f"n{i + 1}"] if i < 9 else []} for i in range(10)}
    chain = {"nodes": nodes, "root_eclasses": ["0"]}
    assert (parse(chain).shift, parse(chain, deadline=-math.inf).shift) == (10, 1)


def test_a_bound_that_is_no_proof_is_less_than_the_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost is 2.25, and the bound is below by less than floats tell apart."""
    data = changed(x={"eclass": "x", "cost": 2}, f={"eclass": "top", "cost": 0.25, "children": ["x"]})
    data["nodes"]["z"] = {"eclass": "z", "cost": 2.0**-80}
    choice = {0: 0, 2: 4}

    def unproven(egraph: SerializedEGraph, time_limit: float) -> Solution:
        cost = 9 * egraph.scale // 4
        return Solution(choice, cost, cost - 1, False, 0.0)

    monkeypatch.setattr(SerializedEGraph, "solve", unproven)
    answer = extract_file(written(tmp_path, data), 10.0)
    assert answer["lower_bound"] < answer["cost"] == 2.25
    assert 0 < answer["gap"] < 1e-15


def named(problem: Problem, costs: Sequence[float], first: Sequence[int | None]) -> dict[str, Any]:
    """A problem as a file, each class named in children by its first node."""
    nodes = {
        f"n{i}": {"op": "f", "cost": costs[i], "eclass": f"c{c}", "children": [f"n{first[d]}" for d in kids]}
        for i, (c, kids) in enumerate(zip(problem.node_class, problem.children, strict=True))
    }
    return {"nodes": nodes, "root_eclasses": [f"c{r}" for r in problem.roots]}


def test_what_nothing_needs_is_not_used_for_its_negative_cost(tmp_path: Path) -> None:
    data = changed(y2={"eclass": "y", "cost": -1, "children": ["x"]}, z={"eclass": "z", "cost": -100})
    answer = extract_file(written(tmp_path, data), 10.0)
    assert answer["choices"] == {"top": "g", "y": "y2", "x": "x"}
    assert (answer["cost"], answer["optimal"]) == (1.25, True)


@pytest.mark.parametrize(
    ("costs", "scale"),
    [
        pytest.param([1.0, 2.0], 1, id="integers"),
        pytest.param([0.1, 0.25], 20, id="decimals as they are written"),
        pytest.param([0.43033599853515625, 1.0], 2**17, id="binary fractions exactly"),
        pytest.param([1e-300, 1.0], None, id="any float exactly"),
    ],
)
def test_costs_become_integers_without_rounding(costs: list[float], scale: int | None) -> None:
    nodes = {str(k): {"eclass": str(k), "cost": c} for k, c in enumerate(costs)}
    egraph = parse({"nodes": nodes, "root_eclasses": list(nodes)})
    if scale is not None:
        assert egraph.scale == scale
    for integer, cost in zip(egraph.problem.node_cost, costs, strict=True):
        assert float(Fraction(integer, egraph.scale)) == cost


def test_answers_agree_with_brute_force(tmp_path: Path) -> None:
    for seed in range(100):
        problem = small_problem(seed)
        known = answers(problem)
        first = [m[0] if m else None for m in problem.members()]
        path = written(tmp_path, named(problem, [cost / 8 for cost in problem.node_cost], first))
        if known:
            assert extract_file(path, 10.0)["cost"] == min(known.values()) / 8
        else:
            with pytest.raises(InputError, match="no acyclic derivation"):
                extract_file(path, 10.0)


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        pytest.param({"top": "g", "y": "y2"}, "needed or chosen", id="a child without choice"),
        pytest.param({"top": "f", "x": "x", "y": "y2"}, "needed or chosen", id="a choice in vain"),
        pytest.param({"top": "x", "x": "x"}, "not one of its nodes", id="a node of another class"),
        pytest.param({"top": "?", "x": "x"}, "not one of its nodes", id="no such node"),
        pytest.param({"top": "g", "y": "y1"}, "in a cycle", id="a cycle"),
        pytest.param({}, "needed or chosen", id="no choice for the root"),
    ],
)
def test_the_checker_rejects_wrong_answers(choices: dict[str, str], complaint: str) -> None:
    with pytest.raises(CheckFailed, match=complaint):
        answer_cost(EXAMPLE, choices)


def test_the_checker_adds_up_right_answers_exactly() -> None:
    assert answer_cost(EXAMPLE, {"top": "f", "x": "x"}) == 3.5
    tenths = {
        "nodes": {str(k): {"eclass": str(k), "cost": 0.1} for k in range(10)},
        "root_eclasses": list("0123456789"),
    }
    assert answer_cost(tenths, {str(k): str(k) for k in range(10)}) == 1.0
