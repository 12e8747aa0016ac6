"""The fuzzer's targets, briefly and always in the same way: every seed, and some thousand damaged ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.fuzz import targets

MUTATIONS = 400
TARGETS = pytest.mark.parametrize("name", list(targets.TARGETS))
# A target that finds nothing in its seeds tests nothing.
LEAST_FOUND = {"scan": 100, "decode": 30, "decompress": 5000, "definitions": 20}


@TARGETS
def test_every_seed_is_valid_and_reaches_its_target(name: str) -> None:
    found = [targets.TARGETS[name](seed) for seed in targets.seeds(name)]
    assert len(found) >= 10
    assert sum(count for count in found if count > 0) >= LEAST_FOUND[name]


@TARGETS
def test_damaged_seeds_are_read_or_refused(name: str) -> None:
    for data in mutations(random.Random(name), list(targets.seeds(name))):
        targets.TARGETS[name](data)


@TARGETS
def test_empty_input_is_read_or_refused(name: str) -> None:
    assert targets.TARGETS[name](b"") <= 1


def mutations(chance: random.Random, seeds: list[bytes], count: int = MUTATIONS) -> Iterator[bytes]:
    for _ in range(count):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 5)):
            at = chance.randrange(len(data) or 1)
            kind = chance.randrange(5)
            if kind == 0:
                data[at : at + 1] = bytes((chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))),))
            elif kind == 1:
                data[at:at] = chance.randbytes(chance.randint(1, 10))
            elif kind == 2:
                del data[at : at + chance.randint(1, 20)]
            elif kind == 3:
                other = chance.choice(seeds)
                data[at:] = other[chance.randrange(len(other)) :]
            else:
                data[at : at + 4] = chance.choice((-1, 0, 2**31 - 1, -(2**31), 61)).to_bytes(
                    4, "big", signed=True
                )
        yield bytes(data)
