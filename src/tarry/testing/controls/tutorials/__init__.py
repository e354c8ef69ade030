"""The algorithms of popular tutorials, each in tarry's place, each caught."""

from tarry.testing.controls.control import Control
from tarry.testing.controls.tutorials.hash_and_zset import HASH_AND_ZSET
from tarry.testing.controls.tutorials.lease_without_fencing import LEASE_WITHOUT_FENCING
from tarry.testing.controls.tutorials.no_start_gate import NO_START_GATE
from tarry.testing.controls.tutorials.one_slot_per_key import ONE_SLOT_PER_KEY
from tarry.testing.controls.tutorials.pop_then_run import POP_THEN_RUN
from tarry.testing.controls.tutorials.rescue_without_state_check import RESCUE_WITHOUT_STATE_CHECK
from tarry.testing.controls.tutorials.ring_queue import RING_QUEUE
from tarry.testing.controls.tutorials.two_step_claim import TWO_STEP_CLAIM
from tarry.testing.controls.tutorials.zset_to_set import ZSET_TO_SET

TUTORIALS: tuple[Control, ...] = (
    ZSET_TO_SET,
    HASH_AND_ZSET,
    RING_QUEUE,
    POP_THEN_RUN,
    LEASE_WITHOUT_FENCING,
    TWO_STEP_CLAIM,
    RESCUE_WITHOUT_STATE_CHECK,
    ONE_SLOT_PER_KEY,
    NO_START_GATE,
)
