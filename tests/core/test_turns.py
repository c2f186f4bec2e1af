"""Long steps take turns on the event loop (field case PF-01)."""

import asyncio

from smg.core.turns import Turns, turn


async def test_PF_01_between_two_long_steps_everybody_else_has_been_on():
    done: list[str] = []

    async def long(name: str) -> None:
        await turn()
        done.append(name)

    async def stream() -> None:
        while len(done) < 7:
            await asyncio.sleep(0)
            if done[-1:] != ["stream"]:
                done.append("stream")

    await asyncio.gather(stream(), *(long(name) for name in "abc"))
    assert done == ["stream", "a", "stream", "b", "stream", "c", "stream"]


async def test_who_leaves_while_it_waits_holds_up_nobody():
    turns, done = Turns(), []

    async def long(name: str) -> None:
        await turns()
        done.append(name)

    tasks = [asyncio.create_task(long(name)) for name in "abcd"]
    await asyncio.sleep(0)
    for at in (0, 2):
        tasks[at].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == ["b", "d"]
