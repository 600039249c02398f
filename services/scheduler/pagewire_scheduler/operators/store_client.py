"""Asks KV stores what their tiers hold."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import grpc.aio

from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_protos.kvstore.v1.kv_store_pb2_grpc import KvStoreServiceStub
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.rpc.links import open_channel
from pagewire_shared.rpc.options import control_channel_options
from pagewire_shared.security.roles import LinkRole

SECONDS: Final = 1.0
"""For an answer: an operator waits for the slowest store."""

_logger = logging.getLogger(__name__)


async def tiers_of(addresses: Sequence[str]) -> Mapping[str, Sequence[admin_pb2.StoreTier]]:
    """Return the tiers of the stores that answer in time, by address."""
    answers = await asyncio.gather(*map(_tiers, addresses))
    return dict(zip(addresses, answers, strict=True))


async def _tiers(address: str) -> Sequence[admin_pb2.StoreTier]:
    target = str(parse_address(address, setting="--kvstore"))
    async with open_channel(target, LinkRole.KVSTORE, control_channel_options()) as channel:
        try:
            stats = await KvStoreServiceStub(channel).Stats(
                kv_store_pb2.StatsRequest(), timeout=SECONDS
            )
        except grpc.aio.AioRpcError as error:
            _logger.info("no tiers of the KV store at %s: %s", address, error.details())
            return ()
    return [
        admin_pb2.StoreTier(
            tier=one.tier,
            num_blocks=one.num_blocks,
            used_bytes=one.used_bytes,
            capacity_bytes=one.capacity_bytes,
            fault=one.fault if one.HasField("fault") else None,
        )
        for one in stats.tiers
    ]
