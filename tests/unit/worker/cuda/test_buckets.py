"""Sizes of captured batches."""

import pytest

from pagewire_worker.cuda.decode_graphs import bucket_of, decode_buckets


def test_small_batches_have_their_sizes_and_large_ones_share():
    assert decode_buckets(33) == (1, 2, 4, 8, 16, 24, 32, 33)
    assert decode_buckets(256)[-3:] == (240, 248, 256)
    assert decode_buckets(300)[-4:] == (256, 272, 288, 300)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 8, 9, 255, 256, 257, 512, 1000])
def test_every_batch_fits_with_little_padding(most):
    buckets = decode_buckets(most)
    assert list(buckets) == sorted(set(buckets))
    assert buckets[-1] == most
    for size in range(1, most + 1):
        bucket = bucket_of(buckets, size)
        assert bucket >= size
        assert bucket - size < (16 if size > 256 else 8)
    assert bucket_of(buckets, most + 1) is None
