"""Names are compared byte by byte, and what a task carries comes back as it was."""
# ruff: noqa: D102 - the name of a promise is its sentence

import pytest

from tarry.due import In
from tarry.request import Request
from tarry.stores.store import Store
from tarry.task import TaskRef, check_key, check_kind
from tarry.testing.conformance.kit import KIND, claim, claim_one, schedule, settle, shown

LOOKALIKES = [
    "straße",
    "strasse",
    "STRASSE",
    "a",
    "A",
    "a ",
    " a",
    "a  ",
    "é",
    "e\N{COMBINING ACUTE ACCENT}",
    "e",
    "1",
    "01",
    "1.0",
    "1e0",
    "\N{ZERO WIDTH SPACE}a",
    "\N{NO-BREAK SPACE}a",
    "ﬀ",
    "ff",
]
ODD_KEYS = {
    "emoji": "👩‍👩‍👧‍👦 🏴󠁧󠁢󠁳󠁣󠁴󠁿",
    "quotes": "'\"`; DROP TABLE task; --",
    "patterns": "%_*?[a-z]\\",
    "braces": "{a}:{b}",
    "separators": "a/b:c|d,e f",
    "right-to-left": "\N{RIGHT-TO-LEFT OVERRIDE}שלום",
    "beyond the first plane": "𒀀𒀁𐎀",
    "line separator": "a\N{LINE SEPARATOR}b",
    "512 bytes": "k" * 512,
    "512 bytes in 128 characters": "🐢" * 128,
    "null": "null",
    "one space": " ",
}


class Keys:
    """What a caller names and hands over is kept exactly."""

    def test_keys_that_look_alike_are_different_tasks(self, store: Store) -> None:
        refs = [TaskRef(KIND, key) for key in LOOKALIKES]

        store.schedule([Request(ref, In(n), ref.key.encode()) for n, ref in enumerate(refs)])

        tasks = [task for task in store.get(refs) if task]
        assert [task.ref for task in tasks] == refs
        assert [task.payload.decode() for task in tasks] == LOOKALIKES

    @pytest.mark.parametrize("key", ODD_KEYS.values(), ids=ODD_KEYS)
    def test_a_key_comes_back_as_it_was(self, store: Store, key: str) -> None:
        ref = TaskRef(KIND, check_key(key))
        schedule(store, ref)

        lease = claim_one(store)

        assert lease.ref == ref
        assert shown(store, ref).ref == ref
        assert settle(store, lease)

    def test_kinds_that_look_alike_are_different_lanes(self, store: Store) -> None:
        kinds = ["order", "Order", "order.", "order:x", "order_x", "order-x", "x" * 128]
        refs = [TaskRef(check_kind(kind), "1") for kind in kinds]
        store.schedule([Request(ref, In(0)) for ref in refs])

        for ref in refs:
            assert [lease.ref for lease in claim(store, ref.kind)] == [ref]

    @pytest.mark.parametrize(
        "data",
        [b"", b"{}", bytes(range(256)), b"\x00", b"\xff\xfe", b'"', b"{" * 262_144],
        ids=["empty", "json", "every byte", "nul", "not text", "not json", "256 KiB"],
    )
    def test_payload_and_headers_are_bytes_that_nobody_looks_into(
        self, store: Store, data: bytes
    ) -> None:
        ref = TaskRef(KIND, "bytes")
        schedule(store, ref, payload=data, headers=data)

        task = claim_one(store).task

        assert (task.payload, task.headers) == (data, data)
        assert shown(store, ref).payload == data
