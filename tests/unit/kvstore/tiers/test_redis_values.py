"""Names of values in Redis, and what is the URL of one."""

import pytest

from pagewire_kvstore.tiers.redis.values import RedisValues, key_of, value_name
from pagewire_shared.errors import StartupError
from support.processes.disk_blocks import block_key


def test_redis_keys_round_trip():
    key = block_key(3)
    assert key_of(value_name(key).encode()) == key
    assert key_of(value_name(key).upper().encode()) is None


@pytest.mark.parametrize("url", ["", "http://x", "redis://h:port", "localhost:6379"])
def test_an_invalid_url_is_refused(url):
    with pytest.raises(StartupError, match="--redis"):
        RedisValues(url)
