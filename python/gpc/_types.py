# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/look.t
"""Structs of the headers as named tuples.  The module compares names and order with its own."""

from typing import NamedTuple


class Run(NamedTuple):
    """Pieces of one size at equal distances, in bytes."""
    part: int = 0
    count: int = 1
    bytes: int = 0
    offset: int = 0
    slot_stride: int = 0
    run_stride: int = 0


class Move(NamedTuple):
    """A key that goes from one block to another; to == -1: there is nothing to copy or commit."""
    from_: int
    to: int
    key: bytes = bytes(16)
    op: int = 0


class Claim(NamedTuple):
    """The state of a key that was claimed: CLAIM_MINE, CLAIM_LIVE or CLAIM_PENDING."""
    key: bytes
    state: int
    block: int
    peer: int = -1
    pid: int = 0
    loading: int = 0
    ahead: int = 0
    age_ns: int = 0
    life: int = 0


class Sum(NamedTuple):
    """The checksum of a block's bytes; crc begins with seed.  result of sealed: 0, or -ENODATA where there is no
    sum."""
    crc: int
    seed: int = 0
    flags: int = 0
    result: int = 0
    word: int = 0


class Pool(NamedTuple):
    """A numbered set of blocks in one place."""
    number: int
    kind: int
    flags: int
    space: int
    blocks: int
    transit: int
    generation: int
    owner: int
    demote_to: int
    gpus: int
    uuid: bytes
    backing: bytes
    memory: int
    block_bytes: int
    fingerprint: bytes
    spill_ahead: int
    live: int
    reserved: int
    dying: int


class PoolMemory(NamedTuple):
    """The memory of a pool as it is."""
    kind: int
    slots: int
    nruns: int
    parts: int
    parts_lent: int
    memory: int
    block_bytes: int
    bytes: int
    huge_bytes: int
    numa: int
    mapped: int
    nodes: int
    pinned: int
    fingerprint: bytes
    device: str
    file: str
    checksums: int
    sums: int


class Info(NamedTuple):
    """Geometry, options, writer and seat."""
    version: int
    block_tokens: int
    max_blocks: int
    max_peers: int
    max_pools: int
    pools: int
    peers: int
    mirrors: int
    writer_pid: int
    writer_generation: int
    peer: int
    tick_us: int
    free_target: int
    keep_tokens: int
    keep_digests: int
    tick: int
    bytes: int
    buckets: int
    hash: str
    devices: str
    layout: bytes
    writer_peer: int
    refused: int
    why: str
    life: int
    max_aliases: int
    created_ns: int
    writer_since_ns: int
    peers_alive: int
    peers_dead: int
    quarantine_ms: int
    peer_quota: int


class Stats(NamedTuple):
    """Counts of one peer since it attached, or summed; in blocks."""
    pid: int
    label: str
    lookups: int
    hit_vram: int
    hit_ram: int
    miss: int
    published: int
    duplicate: int
    evicted: int
    demoted: int
    promoted: int
    dropped: int
    stale_refs: int
    ring_full: int
    relocated: int
    no_bucket: int
    refs: int
    reserved: int
    sections: int
    oldest_section_ns: int
    live: int
    free_blocks: int
    dying: int
    alive: int
    here: int
    left: int
    fetched: int
    spilled: int
    bad: int
    transfers: int
    claims: int
    leader: int
    aliases: int
    commands: int
    pending: int
    fetched_bytes: int
    spilled_bytes: int
    refs_ns: int
    hit_own: int
    hit_disk: int
    hit_store: int
    start_time: int


class Histogram(NamedTuple):
    """How long calls took, or for how long things had been.  cell[k] counts times of at most first_ns << k that are in
    no cell before; the last one counts longer times.  sum is in seconds; blocks and bytes are those of copies."""
    first_ns: int
    cell: tuple[int, ...]
    count: int
    sum: float
    blocks: int
    bytes: int


class Mirror(NamedTuple):
    """One mirror, for tools."""
    generation: int
    device: str
    uuid: bytes
    bytes: int
    flushed: int
    changes: int
    retired: int


class Entry(NamedTuple):
    """One live block."""
    key: bytes
    parent: bytes
    block: int
    depth: int
    tag: int
    refs: int
    stamp: int
    group: int
    digest: bytes


class Event(NamedTuple):
    """One numbered change of a kind: STORED, REMOVED, MOVED, CLEARED or RETURNED."""
    seq: int
    what: int
    tag: int
    block: int
    was: int
    key: bytes
    parent: bytes
    group: int
    digest: bytes


class Transfer(NamedTuple):
    """A transfer that is not over."""
    peer: int
    transfer: int
    blocks: int
    left: int
    ranks: int
    passed: int
    from_: int
    to: int
    age_ns: int


class Tier(NamedTuple):
    """A tier below RAM, for tools.  state: TIER_DOWN, TIER_UP, TIER_OFF for wrong bytes, or TIER_STOPPED if its steward
    takes no questions."""
    kind: int
    pool: int
    steward: int
    ready: int
    state: int
    block_bytes: int
    asks: int
    hits: int
    misses: int
    brought: int
    brought_bytes: int
    written: int
    written_bytes: int
    absent: int
    bad: int
    errors: int
    late: int
    overtaken: int
    no_ram: int
    refused: int
    failed: int
    unwanted: int
    evicted: int
    aged: int
    forgotten: int
    found: int
    restored: int
    orphans: int
    full: int
    down: int
    asked: int
    there: int
    emptied: int
    counters: dict[str, int]
    what: str
    overrun: int


class TiersFile(NamedTuple):
    """The entries of the head of a tier's file."""
    has_secret: int
    blocks: int
    block_bytes: int
    bytes: int
    secret: bytes
