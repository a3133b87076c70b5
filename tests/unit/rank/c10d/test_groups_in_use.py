"""A group is kept while a callback of its last collective lives, and a moment longer."""

import threading
import weakref

from prismdbg.rank.c10d.settled import GroupsInUse


class Group:
    """Something that can be seen to be freed."""


class Clock:
    def __init__(self) -> None:
        self.at_s = 0.0

    def __call__(self) -> float:
        return self.at_s


def test_a_group_is_let_go_a_moment_after_its_callback_and_not_before() -> None:
    clock = Clock()
    kept = GroupsInUse(clock)
    group = Group()
    seen = weakref.ref(group)

    def callback() -> None: ...

    kept.keep(group, callback)
    del group
    clock.at_s = 100.0
    kept.keep(Group(), lambda: None)
    assert seen() is not None, "its callback lives"
    del callback
    clock.at_s += GroupsInUse.AFTER_S / 2
    kept.keep(Group(), lambda: None)
    assert seen() is not None, "its thread may still need Python's lock"
    clock.at_s += GroupsInUse.AFTER_S
    kept.keep(Group(), lambda: None)
    assert seen() is None


def test_threads_may_keep_groups_at_once() -> None:
    kept = GroupsInUse(lambda: 0.0)
    kept.AFTER_S = -1.0  # type: ignore[misc]  # each entry is let go by whoever comes next
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5000):
                kept.keep(Group(), lambda: None)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
