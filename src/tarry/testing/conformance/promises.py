"""StorePromises: every promise of a store in one class."""

from tarry.testing.conformance.calls import Calls
from tarry.testing.conformance.cancelling import Cancelling
from tarry.testing.conformance.claiming import Claiming
from tarry.testing.conformance.dead_letters import DeadLetters
from tarry.testing.conformance.history import History
from tarry.testing.conformance.keys import Keys
from tarry.testing.conformance.lanes import Lanes
from tarry.testing.conformance.leases import Leases
from tarry.testing.conformance.looking import Looking
from tarry.testing.conformance.namespaces import Namespaces
from tarry.testing.conformance.pausing import Pausing
from tarry.testing.conformance.recurring import Recurring
from tarry.testing.conformance.rescheduling import Rescheduling
from tarry.testing.conformance.scanning import Scanning
from tarry.testing.conformance.scheduling import Scheduling
from tarry.testing.conformance.settling import Settling
from tarry.testing.conformance.soundness import Soundness
from tarry.testing.conformance.taking_over import TakingOver
from tarry.testing.conformance.two_slots import TwoSlots
from tarry.testing.conformance.wakeup import Waking


class StorePromises(
    Scheduling,
    Keys,
    Rescheduling,
    Cancelling,
    TwoSlots,
    Claiming,
    Lanes,
    Leases,
    Settling,
    DeadLetters,
    TakingOver,
    Recurring,
    History,
    Pausing,
    Looking,
    Scanning,
    Waking,
    Namespaces,
    Calls,
    Soundness,
):
    """What every store promises; needs the fixtures `clock`, `store` and perhaps `other`."""
