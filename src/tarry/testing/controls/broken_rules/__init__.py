"""The rules of tarry's own design, broken one at a time."""

from tarry.testing.controls.broken_rules.calls import CALLS
from tarry.testing.controls.broken_rules.cancelling import CANCELLING
from tarry.testing.controls.broken_rules.crashes import CRASHES
from tarry.testing.controls.broken_rules.leases import LEASES
from tarry.testing.controls.broken_rules.slots import SLOTS
from tarry.testing.controls.broken_rules.starting import STARTING
from tarry.testing.controls.broken_rules.waking import WAKING
from tarry.testing.controls.broken_rules.wishes import WISHES
from tarry.testing.controls.control import Control

BROKEN_RULES: tuple[Control, ...] = (
    *LEASES,
    *CALLS,
    *CANCELLING,
    *SLOTS,
    *CRASHES,
    *WAKING,
    *STARTING,
    *WISHES,
)
