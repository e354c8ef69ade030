"""A TCP proxy that breaks exchanges on command; put it in front of any server.

```python
from tarry.testing.proxy import Phase, Proxy

def test_a_lost_reply(redis_port: int) -> None:
    with Proxy("127.0.0.1", redis_port) as proxy:
        client = MyClient(*proxy.address)
        client.connect()  # let handshakes pass: they are exchanges too

        proxy.arm(Phase.CUT_BEFORE_REPLY, verb="incr", only=lambda request: b"INCR" in request)
        with pytest.raises(ConnectionError):
            client.incr("n")

        proxy.coverage.expect(["incr"], [Phase.CUT_BEFORE_REPLY])
        assert proxy.coverage.missing() == []
```

The proxy knows no protocol: bytes are opaque, encrypted ones too. A **request** is what a client
sends until the server says something, a **reply** what the server says until the client speaks
again; the two are one **exchange**. A fault is chosen when the first bytes of a request arrive, and
hits exactly that exchange. Three things follow, and a test should know them:

- Requests that are sent before the last reply has begun (a pipeline) are one exchange. One that is
  sent while the last reply still flows begins a new exchange, and what is left of the old reply
  counts as the reply to it: for faults at the reply, use clients that take turns.
- What a server says unasked (pub/sub, NOTIFY) flows, and is part of whatever exchange it follows. A
  connection that only listens is hit by the exchange that subscribed, or by `Proxy.cut_all`.
- A fault that needs the whole of a request or reply waits until no more comes for `quiet_ms`, and
  looks at no more than its first 64 KiB. Everything else is passed on at once, never more than one
  chunk of 64 KiB at a time in each direction: a slow reader slows its writer down, as without a
  proxy, and an end of one direction (a half-closed socket) is passed on as one.
"""

from tarry.testing.proxy.coverage import Coverage
from tarry.testing.proxy.fault import Fault, Phase, Rule
from tarry.testing.proxy.proxy import Proxy

__all__ = ["Coverage", "Fault", "Phase", "Proxy", "Rule"]
