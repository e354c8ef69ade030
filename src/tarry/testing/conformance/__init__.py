"""The promises of a store as inheritable tests; run them on your own store.

```python
from tarry.testing.clock import ManualClock
from tarry.testing.conformance import StorePromises

@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()

@pytest.fixture
def store(clock: ManualClock) -> Iterator[Store]:
    with closing(MyStore(namespace="test", clock=clock)) as store:
        yield store

@pytest.fixture
def other(clock: ManualClock, store: Store) -> Iterator[Store]:  # same medium, other namespace
    with closing(MyStore(namespace="other", clock=clock)) as store:
        yield store

class TestMyStore(StorePromises):
    pass
```

Without `other` the tests of namespaces are skipped. What a medium does not declare in its
`Capabilities` is skipped with a reason.
"""

from pkgutil import iter_modules

import pytest

# A promise that is broken shows both sides of its assert.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from tarry.testing.conformance.promises import StorePromises  # noqa: E402 - rewritten first

__all__ = ["StorePromises"]
