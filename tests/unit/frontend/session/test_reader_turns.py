"""How many streams write in a turn of the event loop."""

import asyncio

from pagewire_frontend.session.reader_turns import ReaderTurns


async def test_a_turn_of_the_loop_has_few_writers_and_the_first_comes_first():
    turns, in_turn, order = ReaderTurns(3), [0], []

    async def count_turns() -> None:
        while True:
            await asyncio.sleep(0)
            in_turn.append(0)

    async def stream(number: int) -> None:
        for _ in range(4):
            await turns.wait()
            in_turn[-1] += 1
            order.append(number)

    counting = asyncio.create_task(count_turns())
    await asyncio.gather(*(stream(number) for number in range(20)))
    counting.cancel()
    # Those that came in a turn, and those whose turn it was, may share one.
    assert max(in_turn) <= 6
    assert sum(in_turn) == 80
    # Each stream has written once before one writes for the third time.
    for number in range(20):
        assert order.index(number) < 40


async def test_a_stream_whose_client_has_left_takes_no_turn():
    turns, written = ReaderTurns(1), []

    async def stream(number: int) -> None:
        await turns.wait()
        written.append(number)

    tasks = [asyncio.create_task(stream(number)) for number in range(5)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert written == [0, 1, 3, 4]


async def test_one_stream_alone_never_waits():
    turns = ReaderTurns(1)
    for _ in range(5):
        waiting = turns.wait()
        try:
            waiting.send(None)
        except StopIteration:
            pass
        else:
            raise AssertionError("it waits")
        await asyncio.sleep(0)
