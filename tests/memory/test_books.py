"""The books of a pool as a state machine, against a model that does nothing but remember who has what."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aioascend.memory.books import Books, Entry, Limits
from aioascend.memory.classes import HUGE_PAGE, SMALLEST, size_class

MIB = 1 << 20
LIMITS = Limits(depth=3, nbytes=8 << 10)
SIZES = st.one_of(st.integers(1, 5000), st.sampled_from([512, 513, 640, 641, 1024, 1025, 8 << 10, 9 << 10]))


@given(st.integers(1, 1 << 40))
def test_a_class_holds_the_request_and_wastes_a_fifth_at_most_or_less_than_a_huge_page(nbytes: int) -> None:
    size = size_class(nbytes)
    assert size >= max(nbytes, SMALLEST)
    assert size % 64 == 0
    assert size_class(size) == size
    assert size == SMALLEST or size - nbytes < size / 5 or size - nbytes < HUGE_PAGE
    assert nbytes <= 8 * MIB or size % HUGE_PAGE == 0


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 40))
def test_a_greater_request_has_no_smaller_class(one: int, other: int) -> None:
    assert (size_class(one) <= size_class(other)) or one > other


def test_four_classes_lie_between_a_power_of_two_and_the_next() -> None:
    assert sorted({size_class(n) for n in range(1025, 4097)}) == [1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096]
    assert [size_class(n * MIB) for n in (8, 9, 17, 99)] == [8 * MIB, 10 * MIB, 18 * MIB, 100 * MIB]


class BooksMachine(RuleBasedStateMachine):
    """Requests served, blocks given back, trimmed, left behind, and contexts that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.books = Books(LIMITS)
        self.next = 64
        self.allocated: dict[Entry, None] = {}  # from the driver, and not freed
        self.holders: dict[Entry, int] = {}  # who asked for how much
        self.former: dict[Entry, None] = {}  # leases that have ended
        self.high_water = 0
        self.calls = [0, 0]

    @rule(nbytes=SIZES, exact=st.booleans())
    def take(self, nbytes: int, exact: bool) -> None:
        entry = self.books.take(nbytes)
        if entry is None:
            size = nbytes if exact else size_class(nbytes)
            entry = self.books.made(self.next, size, nbytes)
            self.next += size
            self.allocated[entry] = None
            self.calls[1] += 1
        else:
            self.calls[0] += 1
            assert entry in self.allocated
            assert nbytes <= entry.size <= 1.5 * size_class(nbytes)
            assert entry.generation == self.books.generation
        assert entry not in self.holders
        self.former.pop(entry, None)
        self.holders[entry] = nbytes

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(list(self.holders)))
        del self.holders[entry]
        self.former[entry] = None
        self.free(self.books.give(entry))

    @precondition(lambda self: self.former)
    @rule(data=st.data())
    def give_again(self, data: st.DataObject) -> None:
        before = self.books.statistics()
        assert self.books.give(data.draw(st.sampled_from(list(self.former)))) == []
        assert self.books.statistics() == before

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(list(self.holders)))
        self.books.forget(entry)
        del self.holders[entry], self.allocated[entry]
        self.former[entry] = None

    @rule(next_context=st.booleans())
    def trim(self, next_context: bool) -> None:
        idle = self.books.idle
        entries = self.books.trim()
        assert sum(entry.size for entry in entries) == idle
        self.free(entries)
        assert set(self.allocated) == set(self.holders)
        self.books.generation += next_context

    def free(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert entry not in self.holders
            del self.allocated[entry]

    @invariant()
    def the_figures_are_right(self) -> None:
        now = self.books.statistics()
        assert now.used == sum(entry.size for entry in self.holders)
        assert now.used + now.idle == sum(entry.size for entry in self.allocated)
        assert now.blocks == len(self.allocated)
        assert now.fragmentation == now.used - sum(self.holders.values())
        assert [now.hits, now.misses] == self.calls
        assert now.high_water >= max(self.high_water, now.used + now.idle)
        self.high_water = now.high_water
        assert self.books.lent() == list(self.holders)

    @invariant()
    def no_more_lies_idle_than_may(self) -> None:
        idle = [entry for entry in self.allocated if entry not in self.holders]
        assert sum(entry.size for entry in idle) <= LIMITS.nbytes
        sizes = [entry.size for entry in idle]
        assert all(sizes.count(size) <= LIMITS.depth for size in sizes)
        assert all(size == size_class(size) for size in sizes)


BooksMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBooks = BooksMachine.TestCase


def lend(books: Books, *sizes: int) -> list[Entry]:
    return [books.made(64 * i, size_class(size), size, f"{i}") for i, size in enumerate(sizes, 1)]


def test_the_block_that_came_back_last_is_lent_first_and_the_one_that_came_back_first_is_freed_first() -> None:
    books = Books(Limits(depth=2, nbytes=MIB))
    first, second, third = lend(books, 1000, 1000, 1000)
    assert [books.give(entry) for entry in (first, second, third)] == [[], [], [first]]
    assert books.take(1000) is third
    assert books.take(1000) is second
    assert books.take(1000) is None


def test_sizes_that_nobody_wants_any_more_make_room_for_those_that_are_wanted() -> None:
    books = Books(Limits(depth=8, nbytes=4096))
    old, older, new = lend(books, 1024, 2048, 3072)
    assert books.give(older) == books.give(old) == []
    assert books.give(new) == [older]
    assert [books.take(3072), books.take(1024)] == [new, old]


def test_what_is_larger_than_all_that_may_lie_idle_drives_nothing_else_out() -> None:
    books = Books(Limits(depth=8, nbytes=4096))
    small, large = lend(books, 1024, 5000)
    books.give(small)
    assert books.give(large) == [large]
    assert books.take(1024) is small


def test_nothing_is_kept_where_nothing_may_be() -> None:
    books = Books(Limits(depth=0, nbytes=4096))
    (entry,) = lend(books, 1024)
    assert books.give(entry) == [entry]


def test_a_larger_block_stands_in_up_to_half_as_much_again_and_is_told_as_fragmentation() -> None:
    books = Books(Limits(depth=8, nbytes=MIB))
    one, other = lend(books, 1536, 1792)
    books.give(one)
    books.give(other)
    assert books.take(1000) is one  # 1024 is its class, and 1792 would be too much
    assert books.take(1000) is None
    assert books.statistics().fragmentation == 536
    assert books.statistics().hit_rate == 1 / 3


def test_the_place_of_a_lease_ends_with_it() -> None:
    books = Books(Limits(depth=8, nbytes=MIB))
    (entry,) = lend(books, 64)
    assert entry.place == "1"
    books.give(entry)
    assert entry.place is None
    assert books.take(64, "elsewhere") is entry
    assert (entry.place, repr(entry)) == ("elsewhere", "<512 bytes at 0x40>")
