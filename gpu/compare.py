"""The model's world against the one on tensors after every action, and where the first difference lies.

What is compared, and what the tensors do not have, is a table of docs/gpu.md; ``standing`` has requests, plans, transfers.
What the model expects is computed from its prefix table in Python's integers (``digests``); the tensors are read back whole.
What the model calls garbage may be anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, field, frozen
from torch import Tensor

from kvproof.core.contents import Cells
from kvproof.core.pool import Pool as ModelPool
from kvproof.core.prefixes import Prefixes
from kvproof.core.world import World
from kvproof.gpu import digests, standing
from kvproof.gpu.pool import NO_KEY, Pool
from kvproof.gpu.world import TensorWorld
from kvproof.spec import ground

DEVICE, HOST = "device", "host"


@frozen(slots=True)
class Difference:
    """The first place where the tensors differ: which part, the two values, and what the place belongs to.

    ``place`` names whatever applies of tier, group, column, block, slot, rank, request and position.
    """

    part: str
    expected: object
    actual: object
    place: tuple[tuple[str, object], ...] = ()

    def text(self) -> str:
        """Return the difference in one line."""
        where = ", ".join(f"{name} {value}" for name, value in self.place)
        return f"{self.part}{f' at {where}' if where else ''}: expected {self.expected}, the tensors have {self.actual}"


@define(slots=True)
class Expected:
    """The digests, states and outputs of the model's prefix nodes, computed when they are asked for first.

    ``sums`` are per node and attention group the weighted tags up to it, by which outputs are told. ``buffers`` are the rows as
    they were written; what stands behind the length of one is known only where every action is compared (``every_action``).
    """

    world: World
    known: list[int] = field(factory=list)
    states: list[tuple[tuple[int, ...], ...]] = field(factory=list)
    sums: list[tuple[int, ...]] = field(factory=list)
    contexts: list[int] = field(factory=list)
    blocks: dict[tuple[Cells, tuple[int, ...]], list[list[int | None]]] = field(factory=dict)
    buffers: dict[int, list[int]] = field(factory=dict)
    every_action: bool = True

    def written(self, group: int, size: int) -> list[int]:
        """Return what a group's rows hold as far as it was seen: entries behind a row's length stay as they were written."""
        return self.buffers.setdefault(group, [0] * size)

    def upto(self, prefixes: Prefixes) -> None:
        """Compute what the nodes of a prefix table stand for, as far as they are new."""
        config = self.world.config
        for node in range(len(self.known), len(prefixes.parent)):
            parent, token, depth = prefixes.parent[node], prefixes.token[node], prefixes.depth[node]
            if parent < 0:
                self.known.append(digests.root(token))
                self.states.append(tuple((0,) * digests.WORDS for _ in config.recurrent))
                self.sums.append((0,) * len(config.positional))
                self.contexts.append(token)
                continue
            digest, context = digests.following(self.known[parent], token), self.contexts[parent]
            self.known.append(digest)
            self.contexts.append(context)
            weight = digests.weight(depth - 1)
            self.sums.append(
                tuple(
                    digests.signed(sofar + weight * digests.tag(digest, group))
                    for group, sofar in zip(config.positional, self.sums[parent], strict=True)
                )
            )
            self.states.append(
                tuple(
                    digests.next_state(state, token, context, group)
                    for group, state in zip(config.recurrent, self.states[parent], strict=True)
                )
            )

    def words(self, content: Cells, ranks: tuple[int, ...], width: int) -> list[list[int | None]]:
        """Return what a block's words must be on these ranks; None where they may be anything."""
        found = self.blocks.get((content, ranks))
        if found is None:
            found = self.blocks[content, ranks] = [self._rank(content, rank, width) for rank in ranks]
        return found

    def _rank(self, content: Cells, rank: int, width: int) -> list[int | None]:
        if not content:
            return [0] * width
        config, group = self.world.config, content[0]
        if group in config.recurrent:
            node = content[1 + rank]
            state = (
                self.states[node][config.recurrent.index(group)] if node >= 0 else (0 if node == -1 else None,) * digests.WORDS
            )
            return [*state, *(None,) * (width - digests.WORDS)]
        size = config.groups[group].block_size
        cells = content[1 + rank * size : 1 + (rank + 1) * size]
        tags = [digests.tag(self.known[cell], group) if cell >= 0 else 0 if cell == -1 else None for cell in cells]
        return [*tags, *(None,) * (width - size)]

    def output(self, prefixes: Prefixes, path: Sequence[int], query: int) -> int:
        """Return the output behind a position of a path of nodes: what nobody cached would compute (CC-7)."""
        del prefixes
        config = self.world.config
        total = 0
        for at, group in enumerate(config.positional):
            first = ground.first_read(config.groups[group], query)
            total += self.sums[path[query + 1]][at] - self.sums[path[first]][at]
        for at, group in enumerate(config.recurrent):
            total += digests.state_part(self.states[path[query + 1]][at], group)
        return digests.signed(total)


def first_difference(model: World, tensors: TensorWorld, expected: Expected) -> Difference | None:
    """Return the first difference between the two worlds, None if there is none."""
    expected.upto(model.prefixes)
    tensors.streams.settle()
    return next(differences(model, tensors, expected), None)


def differences(model: World, tensors: TensorWorld, expected: Expected) -> Iterator[Difference]:
    """Yield differences part by part: tables, rows, references, queues, keys, bytes, then what else stands."""
    yield from _tables(model, tensors)
    yield from _rows(model, tensors, expected)
    yield from _pool(model.pool, tensors.pool, expected, DEVICE)
    yield from _bytes(model, model.contents, tensors.memory, tensors.ranks, expected, DEVICE)
    if model.host is not None and tensors.host is not None:
        yield from _pool(model.host.pool, tensors.host.pool, expected, HOST)
        yield from _bytes(model, model.host.contents, tensors.host.memory, tensors.ranks, expected, HOST)
    yield from _standing(model, tensors, expected)


def _standing(model: World, tensors: TensorWorld, expected: Expected) -> Iterator[Difference]:
    for part in standing.parts(model, tensors, expected.known):
        if part.expected != part.actual:
            yield Difference(part.name, part.expected, part.actual, part.place)
            return


def _tables(model: World, tensors: TensorWorld) -> Iterator[Difference]:
    for request in model.requests:
        here = tensors.requests.get(request.request)
        for group, (state, holding) in enumerate(zip(request.groups, () if here is None else here.groups, strict=False)):
            table = holding.table.tolist()
            if list(state.table) != table:
                yield _entry("table", state.table, table, tensors, (("request", request.request), ("group", group)), group)


def _entry(
    part: str,
    expected: Sequence[int],
    actual: list[int],
    tensors: TensorWorld,
    place: tuple[tuple[str, object], ...],
    group: int,
) -> Difference:
    """Return the difference of two lists of blocks, with the column and the positions where it begins."""
    at = next(
        (at for at, (one, other) in enumerate(zip(expected, actual, strict=False)) if one != other),
        min(len(expected), len(actual)),
    )
    size = tensors.config.sizes[group]
    column = at // (tensors.config.append_expansion if part == "row" else 1)
    where = (*place, ("column", column), ("position", column * size))
    if len(expected) != len(actual) and at >= min(len(expected), len(actual)):
        return Difference(f"{part} length", len(expected), len(actual), where)
    return Difference(part, expected[at], actual[at], (*where, ("block", expected[at])))


def _rows(model: World, tensors: TensorWorld, expected: Expected) -> Iterator[Difference]:
    here, worker = tensors.rows, model.worker
    for name, one, other in (
        ("row owners", list(worker.owners), here.owners),
        ("running columns", [list(columns) for columns in worker.columns], here.columns),
        ("accepted", list(worker.accepted), here.accepted),
    ):
        if one != other:
            yield Difference(name, one, other)
            return
    for group, rows in enumerate(worker.rows):
        width, buffer = here.capacity[group], here.buffers[group].tolist()
        written = expected.written(group, len(buffer))
        for row, entries in enumerate(rows):
            actual = buffer[row * width : row * width + len(entries)]
            if list(entries) != actual:
                place = (("row", row), ("request", worker.owners[row]), ("group", group))
                yield _entry("row", entries, actual, tensors, place, group)
            written[row * width : row * width + len(entries)] = entries
        if expected.every_action and written != buffer:
            yield _behind(written, buffer, width, len(rows), group)
    counts = [[len(row) for row in group] for group in worker.rows]
    if counts != here.lengths.tolist():
        yield Difference("row counts", counts, here.lengths.tolist())


def _behind(written: list[int], buffer: list[int], width: int, rows: int, group: int) -> Difference:
    """Return the difference of an entry that stands behind the length of its row, or behind all rows."""
    at = next(at for at, (one, other) in enumerate(zip(written, buffer, strict=True)) if one != other)
    row, entry = divmod(at, width) if width else (rows, at)
    place: tuple[tuple[str, object], ...] = (("group", group), ("row", row), ("entry", entry))
    return Difference("entry behind a row" if row < rows else "entry behind all rows", written[at], buffer[at], place)


def _pool(model: ModelPool, here: Pool, expected: Expected, tier: str) -> Iterator[Difference]:
    place = (("tier", tier),)
    references = here.ref.tolist()
    if list(model.ref) != references:
        block = next(block for block, (one, other) in enumerate(zip(model.ref, references, strict=True)) if one != other)
        yield Difference("references", model.ref[block], references[block], (*place, ("block", block)))
    free = here.free.tolist()
    if list(model.free) != free:
        yield Difference("free queue", list(model.free), free, place)
    primary = [
        NO_KEY if node < 0 else digests.key(expected.known[node], group)
        for node, group in zip(model.key_node, model.key_group, strict=True)
    ]
    for part, one, other in (
        ("primary key", primary, here.primary.tolist()),
        ("tokens of the primary key", list(model.key_tokens), here.tokens.tolist()),
    ):
        if one != other:
            block = next(block for block, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
            owner = (("group", model.key_group[block]),) if model.key_node[block] >= 0 else ()
            yield Difference(part, one[block], other[block], (*place, ("block", block), *owner))
    keys = [
        (digests.key(expected.known[node], group), block)
        for node, group, _, block in sorted(model.entries, key=lambda entry: entry[2])
    ]
    order = here.order.flatten().tolist()
    held = [at for at, number in enumerate(order) if number >= 0]
    all_keys, width = here.keys.flatten().tolist(), here.keys.shape[1]
    found = [(all_keys[at], at // width) for at in sorted(held, key=order.__getitem__)]
    if keys != found:
        at = next((at for at, (a, b) in enumerate(zip(keys, found, strict=False)) if a != b), min(len(keys), len(found)))
        wanted, here_is = keys[at : at + 1], found[at : at + 1]
        yield Difference("keys, by insertion", wanted, here_is, (*place, ("block", (wanted or here_is)[0][1])))


def _bytes(
    model: World, contents: Sequence[Cells], memory: Tensor, ranks: tuple[int, ...], expected: Expected, tier: str
) -> Iterator[Difference]:
    width = memory.shape[2]
    actual = memory.tolist()
    for block, content in enumerate(contents):
        for index, wanted in enumerate(expected.words(content, ranks, width)):
            here = actual[index][block]
            if wanted == here:
                continue
            for slot, (one, other) in enumerate(zip(wanted, here, strict=True)):
                if one is not None and one != other:
                    yield _byte(model, expected, tier, block, ranks[index], slot, one, other)
                    break


def _byte(model: World, expected: Expected, tier: str, block: int, rank: int, slot: int, one: int, other: int) -> Difference:
    """Return the difference of one word, with whose it is (group, request, position), and what the tensors hold."""
    content = (model.contents if tier == DEVICE or model.host is None else model.host.contents)[block]
    place: list[tuple[str, object]] = [("tier", tier), ("block", block), ("rank", rank), ("slot", slot)]
    wanted: object = "zero"
    if content:
        group = content[0]
        recurrent = group in model.config.recurrent
        cell = content[1 + rank] if recurrent else content[1 + rank * model.config.groups[group].block_size + slot]
        place.append(("group", group))
        if cell >= 0:
            depth = model.prefixes.depth[cell]
            place.append(("boundary", depth) if recurrent else ("position", depth - 1))
            wanted = f"the {'state behind' if recurrent else 'tag of'} prefix {cell}"
        owners = (
            [request.request for request in model.requests if block in request.groups[group].table] if tier == DEVICE else []
        )
        place += [("request", owner) for owner in owners[:1]]
    return Difference("bytes", f"{wanted} ({one})", told_word(model, expected, other), tuple(place))


def told_word(model: World, expected: Expected, value: int) -> str:
    """Return what a word stands for, if any prefix has it."""
    if value == 0:
        return "zero"
    for node, digest in enumerate(expected.known):
        for group in model.config.positional:
            if digests.tag(digest, group) == value:
                return f"the tag of position {model.prefixes.depth[node] - 1}, prefix {node}, group {group}"
        for at, group in enumerate(model.config.recurrent):
            if value in expected.states[node][at]:
                return f"the state behind {model.prefixes.depth[node]} tokens, prefix {node}, group {group}"
    return f"{value}, which no prefix has"
