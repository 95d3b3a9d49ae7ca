"""Time limits of the stages of `optimize`: one record per stage, as shares of the time limit and seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile


@dataclass(frozen=True, slots=True)
class Late:
    """How long after its time a stage is abandoned. At its time it was told to return its best answer.

    Attributes:
        share: of the time limit.
        seconds: on top of that.
        grace: seconds for returning the best answer after Ctrl-C, and for each stage that begins after it.
    """

    share: float = 0.05
    seconds: float = 0.25
    grace: float = 0.5

    def patience(self, seconds: float, limit: float) -> float:
        """Seconds until work that was given `seconds` is abandoned."""
        return seconds + self.share * limit + self.seconds


@dataclass(frozen=True, slots=True)
class Checking:
    """When a check is given up: no result is returned then that it has not compared.

    Attributes:
        share: of the time limit, after its end.
        seconds: on top of that. What then follows takes about half a second.
        least: seconds in any case, and after Ctrl-C while it runs.
        interrupted: seconds for a check that begins after Ctrl-C: the best of many models takes up to half a second.
    """

    share: float = 0.1
    seconds: float = 0.75
    least: float = 0.75
    interrupted: float = 1.0


@dataclass(frozen=True, slots=True)
class After:
    """Time reserved for the stages after the search, which cannot be left out.

    Attributes:
        per_node: seconds of a stage for each node of the program, those of repeated parts counted once: the most that
            NASNet, MaxViT, U-Net, T5, MobileNetV2, Swin and Mamba took on quiet cores of an AMD EPYC server, but for
            the plan, that of the result alone: the 0.3 s of PNASNet on cores half as fast. What lowering takes says
            less: it is short, and its first call loads modules.
        most: largest share of the limit that is reserved for these stages.
        ample, spare: this many times the expected seconds are reserved as long as they are at most this share of the
            limit. A large e-graph takes longer to lift than what was lowered, a busy machine too, and a result that
            is not lifted in time is lost.
        check_share: of the limit, reserved for the check at least.
        check_per_node, check_per_weight: reserved for it if that is more, for each node and each weight of the parts
            that change: even the least comparison of many parts takes some time. With a limit of 8 s, 600 nodes with 31
            million weights in MaxViT took 0.2 to 0.4 s, 30 and 34 million in BERT and CLIP (150 and 190 nodes) 0.4 to
            0.5 s; 306 nodes with 35 million in PNASNet take 0.7 to 1.0 s at least on cores half as fast.
        check_most: the most that is reserved for it, as a share of the limit.
        explain_per_node: reserved for the steps, for each node of the parts that change, but at most what `EXPLAINING`
            gives them: 306 nodes of PNASNet took 0.3 to 0.4 s, 561 of BART 0.8 to 1.2 s.
        near: share of the limit reserved for covers that are nearer to the program as written, if all of it changes.
        further: share of the limit reserved for further plans, if any are asked for.
        written_bytes, written_seconds: bytes of constants that are written in a second, and seconds for all else until
            the process has ended: PNASNet's 344 MB took 0.2 to 0.4 s, and what follows 0.2 s.
    """

    per_node: Mapping[str, float] = field(default_factory=lambda: {"plan": 3e-4, "lift": 1e-3, "report": 1e-4})
    most: float = 0.25
    ample: float = 3.3
    spare: float = 0.12
    check_share: float = 0.065
    check_per_node: float = 1.2e-3
    check_per_weight: float = 1.2e-8
    check_most: float = 0.25
    explain_per_node: float = 1.1e-3
    near: float = 0.05
    further: float = 0.25
    written_bytes: float = 1e9
    written_seconds: float = 0.3

    def writing(self, constants: int) -> float:
        """Expected seconds for writing a model with so many bytes of constants."""
        return self.written_seconds + constants / self.written_bytes

    def expected(self, limit: float, nodes: int, changed: int, weights: int, folding: float) -> dict[str, float]:
        """Expected seconds of the stages after the search of a program of so many nodes, repeated parts counted once,
        whose constants took `folding` seconds to fold. Of these nodes, `changed` are in parts that it may change, which
        have so many elements of constants: what stays as written is lifted and checked in next to no time."""
        share = changed / max(1, nodes)
        whole = sum(self.per_node.values())
        likely = nodes * whole
        kept = max(min(likely, self.most * limit), min(self.ample * likely, self.spare * limit))
        stages = {stage: kept * times / whole for stage, times in self.per_node.items()}
        checking = changed * self.check_per_node + weights * self.check_per_weight
        return {
            **stages,
            "lift": share * stages["lift"],
            "near": share * self.near * limit,
            "fold": folding,
            "check": min(self.check_most * limit, max(self.check_share * limit, checking)),
            "explain": min(EXPLAINING.seconds, changed * self.explain_per_node),
        }


@dataclass(frozen=True, slots=True)
class Search:
    """The search of one form, as shares of its time.

    Attributes:
        starting: share of all time left for which the search waits for its worker to start.
        least_seconds: seconds for a form, however small it is, but at most half of the time left.
        written: for the cover of the form as written.
        saturation: for saturation; the cover has the rest.
        prefetch: a form that may expect so many seconds is saturated while kernels of the one before it are found, the
            first while all are covered as written; once more, if it gets `more` times as many in the end and the first
            time did not suffice.
        fused, unfused: seconds for the first cover of an e-graph, for each e-node, on a device whose kernels fuse
            operators and on others (0.3 to 2.0 ms, and 0.1 to 0.7, for U-Net, T5, Mamba, NASNet, MobileNetV2; quiet
            cores of an AMD EPYC server; 0.7 to 2.1 ms for PNASNet on cores half as fast). A cover that is not finished
            in time is lost, and so is the gain of an e-graph that stays too small. Fixed figures: what is found must
            not depend on what else the machine does.
        of_form_node, of_e_node: the same for an e-graph that has grown far beyond its form, on a device whose kernels
            fuse: for each node of the form and for each e-node. MobileNetV2's largest form has 112 nodes, 2900 e-nodes
            and a cover in 1.0 s, Mamba's 176, 2000 and 1.4 s, NASNet's 354, 1200 and 2.2 s.
        again: time of the second look besides finding kernels at most, as a multiple of that of the first look.
        joined: time that must be left for a look with further kernels of several outputs, as a multiple of that of the
            look before: it takes 0.5 to 1.4 times as long (ShuffleNet, Mamba).
        others: the same for covers of two other programs by themselves, and for the look after these: they take 0.05 to
            0.5 times as long (BERT, Llama, U-Net).
        begun: share of its expected time that must be left for a second look to begin.
        slower: time of finding kernels within quick limits for the second look at most, as a multiple of that of the
            first look. With all kernels it takes 1.5 to 2.2 times as long (MobileNetV2): these are kept as long as the
            time suffices for the others within quick limits.
        uncut: a program that was cut since its parts repeat is searched whole as well, if that is expected to take at
            most this share of the time limit. It must gain the share `gain` of the price: equal parts are plainer.
        looks, looks_unfused: times as long as the first cover of a form's nodes, as written, are its saturation and the
            first cover of its e-graph expected to take, on a device whose kernels fuse and on others. An e-graph grows
            as far as its time allows: PNASNet's cells of 153 nodes grew to 282 e-nodes in less than 1 s and gained next
            to nothing, to 376 and more with 1.0 to 1.5 s and cost a fifth less (cores half as fast). With time enough,
            its forms of 300 took 3, MobileNetV2's of 112 took 1.4.
        per_square: expected seconds for a form, for each square of its nodes. Forms of Swin with 23, 39 and 69 nodes
            took 0.15, 0.3 and 1.0 s, those of MobileNetV2 with 58, 85 and 112 took 0.5, 1.3 and 4: 1.5e-4 to 3.2e-4.
        per_node: the most that is expected for a program searched whole, for each node: Mamba's 176 took 6 s, T5's 329
            took 7, and U-Net's 394 took 6.
    """

    starting: float = 0.5
    least_seconds: float = 4.0
    written: float = 0.5
    saturation: float = 0.4
    prefetch: float = 2.0
    more: float = 1.5
    fused: float = 1.4e-3
    unfused: float = 5e-4
    of_form_node: float = 5e-3
    of_e_node: float = 3e-4
    again: float = 3.0
    joined: float = 1.5
    others: float = 2.2
    begun: float = 0.25
    slower: float = 1.5
    uncut: float = 0.5
    gain: float = 1e-3
    looks: float = 4.8
    looks_unfused: float = 2.4
    per_square: float = 3e-4
    per_node: float = 3e-2

    def expected(self, size: int) -> float:
        """Expected seconds for a form of so many nodes."""
        return self.per_square * size**2

    def whole(self, size: int) -> float:
        """Expected seconds for a program of so many nodes in one part."""
        return min(self.expected(size), self.per_node * size)

    def first_look(self, size: int, fuses: bool) -> float:
        """Expected seconds for saturating a form of so many nodes, and for the first cover of its e-graph."""
        return (self.looks if fuses else self.looks_unfused) * self.cover_seconds(size, fuses)

    def cover_seconds(self, nodes: int, fuses: bool) -> float:
        """Expected seconds for the first cover of an e-graph of so many e-nodes."""
        return nodes * (self.fused if fuses else self.unfused)

    def coverable(self, seconds: float, size: int, fuses: bool) -> float:
        """Most e-nodes of an e-graph that is covered in so many seconds, grown from a form of `size` nodes."""
        seconds = max(0.0, seconds)
        grown = (seconds - size * self.of_form_node) / self.of_e_node if fuses else 0.0
        return max(seconds / self.cover_seconds(1, fuses), grown)

    def of_form(self, left: float, size: int, waiting: Sequence[int]) -> float:
        """Seconds for one form, of the time left for those in `waiting`, itself included. `size` counts nodes.

        Shares go by the squares of sizes, as the time of a search does (`per_square`). A form whose share is too small
        to search it may take up to half of the time left: a few finished searches give more than many that hardly
        began.
        """
        share = size**2 / max(1, sum(each**2 for each in waiting))
        return max(left * share, min(self.least_seconds, left / 2))

    def next_form(
        self, left: float, elsewhere: float, waiting: Sequence[int], expected: Callable[[int], float]
    ) -> tuple[int, float]:
        """The place in `waiting` of the next form, and its seconds.

        Its process has `left` seconds, and other processes have the seconds `elsewhere` to spare. The form gets its
        share of both, but at most `left`.

        It is the largest of the first ones whose seconds suffice, where `expected(nodes)` are needed: what begins last
        is then short, so that no process waits long for another. Where they do not suffice for the first, it is that
        one: those behind it gain less for their time.
        """
        seconds = [min(left, self.of_form(left + elsewhere, size, waiting)) for size in waiting]
        suffice = takewhile(lambda i: seconds[i] >= expected(waiting[i]), range(len(waiting)))
        place = max(suffice, key=waiting.__getitem__, default=0)
        return place, seconds[place]

    def next_begun(self, left: float, expected: Mapping[int, float]) -> tuple[int, float] | None:
        """Which of several forms to go on with, by the seconds that each is expected to take, and its seconds of those
        `left`: the shortest first. It gets all but the expected seconds of the others, and at least its own. None where
        so little is left that it would hardly begin."""
        least = min(expected, key=lambda i: (expected[i], i), default=None)
        if least is None or left <= self.begun * expected[least]:
            return None
        others = sum(expected.values()) - expected[least]
        return least, min(left, max(left - others, expected[least]))


@dataclass(frozen=True, slots=True)
class Together:
    """Whether forms are searched in several processes at once.

    Attributes:
        nodes: of all forms, at least: searching fewer takes little longer than starting a process.
        seconds: left for the search, at least.
        memory: bytes for each process, at least.
        kinds: of operators in a model for each process that is started before it is read: a process that is not needed
            takes a second of another processor. Eight models with 60 to 130 kinds (PNASNet, MaxViT, Swin, HRNet, and
            the like) were all searched in several processes, of 24 with fewer (43 at most) five were.
    """

    nodes: int = 300
    seconds: float = 3.0
    memory: int = 1 << 30
    kinds: int = 60


@dataclass(frozen=True, slots=True)
class Joining:
    """Covers of two neighbouring parts as one.

    Attributes:
        share: of the time limit that is reserved for them at most.
        per_node: expected seconds for each node of both parts: 103 nodes of Swin took 0.5 s, 427 of NASNet 3.
        gain: share of the price that must be gained: equal parts are plainer.
    """

    share: float = 0.08
    per_node: float = 4e-3
    gain: float = 1e-3

    def expected(self, size: int) -> float:
        """Expected seconds for two parts with so many nodes together."""
        return self.per_node * size


@dataclass(frozen=True, slots=True)
class Further:
    """Further plans: seconds for the covers of a form, even past the time limit."""

    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Folding:
    """Constants of the result: most work for a form after Ctrl-C, when the answer is due at once."""

    hurried_flops: int = 4_000_000_000


@dataclass(frozen=True, slots=True)
class Explaining:
    """The steps to a result.

    Attributes:
        seconds: to find, evaluate and write them. They limit the work, which is counted, so that the steps do not
            depend on what else the machine does.
        slow: how many times as long this work may take by the clock.
        late: the share of the seconds by which it may exceed the time limit.
    """

    seconds: float = 1.0
    slow: float = 3.0
    late: float = 0.25


@dataclass(frozen=True, slots=True)
class Measuring:
    """Running the source and plans in turns.

    Attributes:
        share: of the time limit, reserved for it; time that is left besides is taken where it must be.
        late: the share of the time limit that it may take if none is left.
        rounds: most rounds.
        loading: a further plan is loaded if the last one took at most this share of the time then left.
        sure: a further plan rewrites only the forms that gain this share of their price, more than prices are off.
        least_gain: a plan must be this many times as fast as the source: times of two loads of one file differed by up
            to 2.5 %, by where their weights lie in memory.
    """

    share: float = 0.25
    late: float = 0.1
    rounds: int = 64
    loading: float = 0.2
    sure: float = 0.05
    least_gain: float = 1.02


LATE, AFTER, SEARCH, FURTHER, FOLDING, EXPLAINING = Late(), After(), Search(), Further(), Folding(), Explaining()
TOGETHER, JOINING, CHECKING, MEASURING = Together(), Joining(), Checking(), Measuring()
