"""Blocks that one cell put into a store of another project are found by a fresh cell: equal tokens,
and usage says from where. Whatever the store does, every request is answered with equal tokens."""

import asyncio
import time
from pathlib import Path

from support.cells.kv_cells import Answer, ask, ask_all, prompt_of
from support.cells.outside_cells import NUM_LOADED, NUM_TOKENS, PROMPTS, cell_with, tokens
from support.processes.outside_stores import LmcacheServer, MooncakeLender, MooncakeMaster

Store = MooncakeMaster | LmcacheServer


def test_a_fresh_cell_finds_blocks_that_another_put(
    store: Store, checkpoint: Path, expected: list[Answer]
) -> None:
    with cell_with(checkpoint, store.transfer_config) as cluster:
        assert tokens(asyncio.run(ask_all(cluster, PROMPTS))) == tokens(expected)
        time.sleep(1.0)  # blocks go out beside the answers
    with cell_with(checkpoint, store.transfer_config) as fresh:
        answers = asyncio.run(ask_all(fresh, PROMPTS[:4]))
        assert tokens(answers) == tokens(expected[:4])
        assert [one.cached for one in answers] == [{store.tier: NUM_LOADED}] * 4
        # What no cell has put is asked for, missing, and computed.
        assert ask(fresh, prompt_of(77, NUM_TOKENS)).cached == {}
        # The second time the worker's own cache has it.
        again = ask(fresh, PROMPTS[0])
        assert again.cached == {"worker": NUM_LOADED}


def test_blocks_with_seals_and_two_workers(
    store: Store, checkpoint: Path, tmp_path: Path, expected: list[Answer]
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("4f" * 32)
    settings = {"kv_key_file": str(keys), "num_workers": 2}
    with cell_with(checkpoint, store.transfer_config, **settings) as cluster:
        assert tokens(asyncio.run(ask_all(cluster, PROMPTS))) == tokens(expected)
        time.sleep(1.0)
    with cell_with(checkpoint, store.transfer_config, kv_key_file=str(keys)) as fresh:
        answers = asyncio.run(ask_all(fresh, PROMPTS[:3]))
        assert tokens(answers) == tokens(expected[:3])
        assert [one.cached for one in answers] == [{store.tier: NUM_LOADED}] * 3
    # Without the key the layout is another one: nothing is found, and nothing wrong is served.
    with cell_with(checkpoint, store.transfer_config) as other:
        answer = ask(other, PROMPTS[0])
        assert (answer.cached, answer.token_ids) == ({}, expected[0].token_ids)


def test_a_killed_store_costs_no_request_and_is_used_again(
    store: Store, checkpoint: Path, expected: list[Answer]
) -> None:
    with cell_with(checkpoint, store.transfer_config) as cluster:
        assert ask(cluster, PROMPTS[0]).token_ids == expected[0].token_ids
        time.sleep(0.5)
        store.kill()
        for number in (1, 2, 3):
            started = time.monotonic()
            assert ask(cluster, PROMPTS[number]).token_ids == expected[number].token_ids
            assert time.monotonic() - started < 10
        store.start()
        # Once more blocks have gone out, a fresh cell finds them.
        with cell_with(checkpoint, store.transfer_config) as fresh:
            end = time.monotonic() + 60
            number = 100
            while True:
                prompt = prompt_of(number, NUM_TOKENS)
                first = ask(cluster, prompt)
                time.sleep(1.0)
                second = ask(fresh, prompt)
                assert second.token_ids == first.token_ids
                if store.tier in second.cached:
                    break
                assert time.monotonic() < end, "the store is used again"
                number += 1


def test_a_stopped_store_costs_no_request(
    store: Store, checkpoint: Path, expected: list[Answer]
) -> None:
    with cell_with(checkpoint, store.transfer_config) as cluster:
        assert ask(cluster, PROMPTS[0]).token_ids == expected[0].token_ids
        time.sleep(1.0)
        with cell_with(checkpoint, store.transfer_config) as fresh:
            store.pause()
            try:
                for number, prompt in enumerate(PROMPTS):
                    started = time.monotonic()
                    answer = ask(fresh, prompt)
                    assert answer.token_ids == expected[number].token_ids
                    assert time.monotonic() - started < 5, "a question has a deadline"
            finally:
                store.resume()


def test_workers_lend_memory_and_take_it_back(
    tmp_path: Path, checkpoint: Path, expected: list[Answer]
) -> None:
    with MooncakeMaster(tmp_path) as master:
        config = master.config_at(master.address, global_segment_size="64mb")
        with cell_with(checkpoint, config) as fresh:
            with cell_with(checkpoint, config) as cluster:
                assert tokens(asyncio.run(ask_all(cluster, PROMPTS))) == tokens(expected)
                time.sleep(1.0)
                answer = ask(fresh, PROMPTS[0])
                assert answer.token_ids == expected[0].token_ids
                assert answer.cached == {"mooncake": NUM_LOADED}
            # With the first cell its memory is gone, and what was in it is computed.
            answers = asyncio.run(ask_all(fresh, PROMPTS))
            assert tokens(answers) == tokens(expected)


def test_replicas_outlive_a_lender_that_is_killed(
    tmp_path: Path, checkpoint: Path, expected: list[Answer]
) -> None:
    with (
        MooncakeMaster(tmp_path) as master,
        MooncakeLender(master) as first,
        MooncakeLender(master),
    ):
        config = master.config_at(master.address, replica_num=2)
        with cell_with(checkpoint, config) as cluster:
            assert tokens(asyncio.run(ask_all(cluster, PROMPTS))) == tokens(expected)
            time.sleep(1.0)
            first.kill()
        time.sleep(4.0)  # the master lets the dead client expire after 3 s
        with cell_with(checkpoint, config) as fresh:
            answers = asyncio.run(ask_all(fresh, PROMPTS[:4]))
            assert tokens(answers) == tokens(expected[:4])
            cached = [one.cached for one in answers]
            assert cached == [{"mooncake": NUM_LOADED}] * 4


def test_a_lender_that_hangs_costs_no_request(
    tmp_path: Path, checkpoint: Path, expected: list[Answer]
) -> None:
    with MooncakeMaster(tmp_path) as master, MooncakeLender(master) as lender:
        with cell_with(checkpoint, master.transfer_config) as cluster:
            assert tokens(asyncio.run(ask_all(cluster, PROMPTS))) == tokens(expected)
            time.sleep(1.0)
        with cell_with(checkpoint, master.transfer_config) as fresh:
            lender.pause()
            try:
                for number, prompt in enumerate(PROMPTS):
                    started = time.monotonic()
                    assert ask(fresh, prompt).token_ids == expected[number].token_ids
                    assert time.monotonic() - started < 5
            finally:
                lender.resume()
