"""Work that steps back behind event loops."""

import os
import threading

import pytest

from smg.core.background import NICENESS, background, beside


def where():
    return threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


async def test_it_runs_beside_the_loop_at_a_lower_priority():
    here = where()
    thread, priority = await background(where)
    assert thread != here[0]
    assert priority == max(here[1], NICENESS)


async def test_arguments_and_failures_pass_through():
    assert await background(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await background(divmod, 1, 0)


async def test_what_holds_the_gil_runs_at_the_priority_of_the_loop():
    thread, priority = await beside(where)
    assert thread != threading.get_native_id()
    assert priority == where()[1]
    with pytest.raises(ZeroDivisionError):
        await beside(divmod, 1, 0)
