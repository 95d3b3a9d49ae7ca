"""Chains: what a class costs as a leaf, by a cover and by kernels, and which classes are promising."""

from __future__ import annotations

import pytest

from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.device.table import DEVICES
from eqsat.extract.kernels import chains
from eqsat.extract.kernels.candidates import Candidate, Candidates, enumerate_candidates
from eqsat.extract.kernels.chains import Chain, Guess, chains_of, cost_of
from eqsat.extract.kernels.cost import Prices
from eqsat.extract.kernels.cuts import Cut, Facts, Kind, Limits, bits
from eqsat.extract.kernels.grow import Grower
from eqsat.layout import arithmetic as lay
from eqsat.program.core import make
from support.core_programs import bin_, c_, mm, un, view, x_

MI300X = DEVICES["mi300x"]
X = x_("x", 64 * 32)


def test_a_leaf_that_hides_a_product_is_taken_for_a_launch_first_and_for_its_chain_when_kernels_are_known() -> None:
    product = mm(x_("x", 2048 * 2048), c_("w", 2048 * 2048), 2048, 2048, 2048)
    snapshot = Snapshot.from_core([un("relu", product)])
    (hidden,) = {n.cls for n in snapshot.nodes if n.op == "MM"}
    found = enumerate_candidates(snapshot, MI300X)
    prices, made = Prices(MI300X, False), found.made
    assert made is not None
    assert Grower(snapshot, prices, Limits(), made).guess.beneath(1 << hidden) == prices.launch
    known = Grower(snapshot, prices, Limits(), made, found.chains())
    assert known.guess.beneath(1 << hidden) == min(x.price for x in found.of_class[hidden]) > 2 * prices.launch


def test_a_guess_at_leaves_is_made_anew_only_where_one_of_them_gets_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Snapshot.from_core([un("exp", un("tanh", X))])
    (top,) = snapshot.roots
    (below,) = snapshot.of_class(top)[0].args
    guess = Guess(Facts(snapshot, Limits()), 5, {})
    assert guess.beneath(1 << below) == 5
    monkeypatch.setattr(chains, "cost_of", lambda known, launched: 100 + cost_of(known, launched))
    guess.correct(top, Chain(3, 3))
    assert guess.beneath(1 << below) == 5
    guess.correct(below, Chain(4, 4))
    assert guess.beneath(1 << below) == 104


def test_chains_of_classes_that_read_each_other_end_in_kernels_that_do_not() -> None:
    snapshot = Snapshot.from_core([un("exp", un("tanh", X))])
    facts = Facts(snapshot, Limits())
    (top,) = snapshot.roots
    (below,) = snapshot.of_class(top)[0].args
    cut = Cut(top, -1, (), Kind.POINT, None, 0, 0, ())

    def kernel(cls: int, price: int, *children: int) -> Candidate:
        return Candidate(cls, "pointwise", children, children, price, cut)

    kernels: list[list[Candidate]] = [[] for _ in range(snapshot.n_classes)]
    kernels[below] = [kernel(below, 1, top), kernel(below, 9)]
    kernels[top] = [kernel(top, 2, below), kernel(top, 7)]
    assert Candidates(kernels, facts).chains() == {below: Chain(8, 1), top: Chain(7, 7)}


def test_an_array_of_a_cover_costs_each_of_its_readers_a_part() -> None:
    below = un("tanh", X)
    one, two, shared = Snapshot.from_core([un("exp", below), un("neg", below), below]).roots
    cut = Cut(shared, -1, (), Kind.POINT, None, 0, 0, ())
    reads = {shared: (), one: (shared,), two: (shared,)}

    def chains(*calls: tuple[int, int, tuple[str, tuple[()]] | None], result: bool = False) -> dict[int, Chain]:
        cover = [Candidate(c, "pointwise", reads[c], reads[c], price, cut, call) for c, price, call in calls]
        snapshot = Snapshot.from_core([un("exp", below), un("neg", below), *[below] * result])
        return chains_of([[] for _ in range(snapshot.n_classes)], Facts(snapshot, Limits()), cover)

    apart = (shared, 8, None), (one, 3, None), (two, 1, None)
    assert chains(*apart) == {shared: Chain(4, 4), one: Chain(7, 3), two: Chain(5, 1)}
    assert chains(*apart, result=True)[shared] == Chain(2, 2)
    joint = chains(apart[0], (one, 4, ("joint", ())), (two, 4, ("joint", ())))
    assert joint == {shared: Chain(8, 8), one: Chain(10, 2), two: Chain(10, 2)}


def test_what_a_cover_does_not_compute_is_shared_as_what_it_computes_instead() -> None:
    """Two halves of an array, each turned: a cover reads the turned ones, and could read the array by its slices."""
    n = 8
    whole = un("tanh", x_("x", 2 * n * n))
    halves = [view(whole, lay.strided(k * n * n, ((n, 1), (n, n)))) for k in range(2)]
    snapshot = Snapshot.from_core(
        [bin_("add", *halves), bin_("mul", *halves), view(whole, lay.strided(0, ((n * n, 1),)))]
    )
    added, multiplied, sliced = snapshot.roots
    (array,) = {node.args[0] for node in snapshot.nodes if node.op == "V"}
    turned = snapshot.of_class(added)[0].args
    cut = Cut(array, -1, (), Kind.POINT, None, 0, 0, ())

    def kernel(cls: int, price: int, *children: int) -> Candidate:
        return Candidate(cls, "pointwise", children, children, price, cut)

    cover = [kernel(turned[0], 6), kernel(turned[1], 6), kernel(added, 2, *turned), kernel(multiplied, 2, *turned)]
    kernels: list[list[Candidate]] = [[] for _ in range(snapshot.n_classes)]
    kernels[array], kernels[sliced] = [kernel(array, 8)], [kernel(sliced, 0, array)]
    found = chains_of(kernels, Facts(snapshot, Limits()), cover)
    assert [found[c] for c in turned] == [Chain(3, 3)] * 2
    assert found[array] == Chain(2, 2), "two kernels and the result would read it"
    assert found[sliced] == found[array], "a slice is not free while its array must be written"


def test_classes_are_promising_if_programs_that_compute_them_cost_little_more_or_few_are_nearer() -> None:
    """A result from one of two arrays, or from a dear one that hides another; the two are together in a third."""
    below = [un(fn, X) for fn in ("tanh", "abs", "neg", "sqrt")]
    joined = make("Cat", (), tuple(below[:2]))
    snapshot = Snapshot.from_core([bin_("add", bin_("mul", *below[:2]), bin_("mul", *below[2:])), joined])
    root, both = snapshot.roots
    best, good, poor, hidden = (n.cls for n in snapshot.nodes if n.op == "Un")

    def kernel(cls: int, price: int, *children: int, inner: int = 0) -> Candidate:
        cut = Cut(cls, -1, (), Kind.POINT, None, 0, 1 << cls | inner, ())
        return Candidate(cls, "pointwise", children, children, price, cut)

    kernels: list[list[Candidate]] = [[] for _ in range(snapshot.n_classes)]
    kernels[root] = [kernel(root, 10, best), kernel(root, 11, good), kernel(root, 10, poor)]
    kernels[best], kernels[good] = [kernel(best, 5)], [kernel(good, 6)]
    kernels[poor] = [kernel(poor, 15, inner=1 << hidden)]
    found = Candidates(kernels, Facts(snapshot, Limits()))

    def promising(most: int, least: int = 0) -> set[int]:
        return set(bits(found.promising(most, least)))

    assert promising(0) == promising(1) == {root, best}
    assert promising(2) == promising(9) == promising(0, least=3) == {root, best, good, both}
    assert promising(10) == {root, best, good, both, poor, hidden}
