"""Several Redis servers that act as one: a primary with replicas and sentinels, a cluster."""

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import RedisError
from redis.retry import Retry
from tests.network.servers import HOST, Server, needed, reserved, until

from tarry.stores.redis.layout import prefix

SERVICE = "shop"
SLOTS = 16_384
_QUORUM = 2
_QUIET = ["--bind", HOST, "--loglevel", "warning", "--repl-diskless-sync-delay", "0"]
_QUIET += ["--repl-ping-replica-period", "1"]
_KEPT = ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]


def say(port: int, *words: str | int) -> Any:
    """Say one command to the server at *port* and return its reply as text."""
    client: Any = Redis(
        host=HOST,
        port=port,
        socket_timeout=5,
        decode_responses=True,
        protocol=2,
        retry=Retry(NoBackoff(), 0),
    )
    # As it was said: the driver makes something else of some replies.
    client.response_callbacks.clear()
    with closing(client):
        return client.execute_command(*words)


def asked(port: int, *words: str | int) -> Any:
    """Say one command; None if there is no reply, or a refusal."""
    try:
        return say(port, *words)
    except RedisError:
        return None


def info(port: int, section: str = "replication") -> dict[str, str]:
    """Return what the server at *port* tells of itself, empty if it is away."""
    lines = (asked(port, "INFO", section) or "").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


class Ensemble:
    """Servers that are started together and ended together."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.servers: list[Server] = []

    def _start(
        self, command: Callable[[int], list[str]], place: socket.socket | None = None
    ) -> Server:
        server = self._stack.enter_context(Server(command, place))
        self.servers.append(server)
        return server

    def at(self, port: int) -> Server:
        """Return the server that listens on *port*."""
        return next(server for server in self.servers if server.port == port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


class Watched(Ensemble):
    """A primary with two replicas, and three sentinels that put one of them in its place."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        program = needed("redis-server")
        try:
            self.keepers = list(self._keepers(program, folder))
            self.sentinels = list(self._sentinels(program, folder))
        except BaseException:
            self._stack.close()
            raise

    def _keepers(self, program: str, folder: Path) -> Iterator[Server]:
        primary = 0
        for number in range(3):
            place = folder / f"keeper-{number}"
            place.mkdir()
            follow = ["--replicaof", f"{HOST} {primary}"] if primary else []
            words = [program, *_QUIET, *_KEPT, "--dir", str(place), *follow]
            keeper = self._start(partial(_on_port, words))
            primary = primary or keeper.port
            yield keeper
        until(lambda: info(primary).get("connected_slaves") == "2", "the replicas follow")

    def _sentinels(self, program: str, folder: Path) -> Iterator[Server]:
        """Start sentinels that know each other: they would need seconds to find out."""
        primary, *replicas = (keeper.port for keeper in self.keepers)
        places = [reserved() for _ in range(3)]
        ports = [place.getsockname()[1] for place in places]
        for number, port in enumerate(ports):
            others = [each for each in range(3) if each != number]
            lines = [
                f"port {port}",
                f"bind {HOST}",
                "loglevel warning",
                f"sentinel myid {_name(number)}",
                f"sentinel monitor {SERVICE} {HOST} {primary} {_QUORUM}",
                f"sentinel down-after-milliseconds {SERVICE} 1000",
                f"sentinel failover-timeout {SERVICE} 4000",
                *(f"sentinel known-replica {SERVICE} {HOST} {each}" for each in replicas),
                *(
                    f"sentinel known-sentinel {SERVICE} {HOST} {ports[each]} {_name(each)}"
                    for each in others
                ),
            ]
            path = folder / f"sentinel-{number}.conf"
            path.write_text("\n".join(lines) + "\n")
            yield self._start(partial(_sentinel, program, path), places[number])
        for port in ports:
            until(partial(self._sees_all, port), "a sentinel sees all")

    def _sees_all(self, port: int) -> bool:
        rows = [
            *(asked(port, "SENTINEL", "REPLICAS", SERVICE) or []),
            *(asked(port, "SENTINEL", "SENTINELS", SERVICE) or []),
        ]
        flags = [dict(zip(row[::2], row[1::2], strict=True))["flags"] for row in rows]
        return sorted(flags) == ["sentinel", "sentinel", "slave", "slave"]

    @property
    def url(self) -> str:
        """Where a store finds it."""
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    def primary(self) -> Server | None:
        """Return the server that all sentinels name as the primary."""
        named = {
            tuple(asked(each.port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE) or ("", 0))
            for each in self.sentinels
        }
        return self.at(int(named.pop()[1])) if len(named) == 1 else None

    def take_over(self, killed: Callable[[], object] = lambda: None) -> Server:
        """Kill the primary and wait until a replica has taken over; returns who was killed.

        It is told that the primary has been *killed* before anybody can take its place.
        """
        victim = self.primary()
        assert victim is not None
        victim.kill()
        killed()
        until(lambda: self.primary() not in {None, victim}, "a replica takes over", 60)
        return victim

    def heal(self) -> None:
        """Wait until there is a primary, followed by all others, and all sentinels agree on it."""

        def healed() -> bool:
            primary = self.primary()
            told = info(primary.port) if primary else {}
            return told.get("role") == "master" and told.get("connected_slaves") == "2"

        until(healed, "a primary and two replicas", 60)


def _on_port(words: list[str], port: int) -> list[str]:
    return [*words, "--port", str(port)]


def _sentinel(program: str, path: Path, _port: int) -> list[str]:
    return [program, str(path), "--sentinel"]


def _name(number: int) -> str:
    return f"{number + 1:040x}"


class Cluster(Ensemble):
    """Three primaries with a replica each."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        program = needed("redis-server")
        self._buses: dict[int, int] = {}
        try:
            for number in range(6):
                place = folder / f"node-{number}"
                place.mkdir()
                self._node(program, place)
            self._join()
        except BaseException:
            self._stack.close()
            raise

    def _node(self, program: str, folder: Path) -> None:
        bus = self._stack.enter_context(closing(reserved()))
        words = [
            *(program, *_QUIET, *_KEPT, "--dir", str(folder), "--cluster-enabled", "yes"),
            *("--cluster-port", str(bus.getsockname()[1]), "--cluster-node-timeout", "1500"),
            *("--cluster-allow-replica-migration", "no"),
        ]
        server = self._start(partial(_on_port, words))
        self._buses[server.port] = bus.getsockname()[1]

    def _join(self) -> None:
        first, *others = (server.port for server in self.servers)
        primaries, replicas = self.servers[:3], self.servers[3:]
        bounds = [n * SLOTS // 3 for n in range(4)]
        for number, server in enumerate(primaries):
            say(server.port, "CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
        for number, server in enumerate(self.servers):
            say(server.port, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for port in others:
            say(first, "CLUSTER", "MEET", HOST, port, self._buses[port])
        names = [say(server.port, "CLUSTER", "MYID") for server in primaries]
        for replica, name in zip(replicas, names, strict=True):
            follow = partial(asked, replica.port, "CLUSTER", "REPLICATE", name)
            until(follow, "a replica knows its primary")
        self.heal()

    @property
    def url(self) -> str:
        """Where a store finds it: two nodes are enough."""
        return f"redis+cluster://{HOST}:{self.servers[0].port},{HOST}:{self.servers[4].port}"

    def primaries(self) -> list[Server]:
        """Return the primaries in the order of their slots, as some living node sees them."""
        rows = next(rows for port in self._ports() if (rows := asked(port, "CLUSTER", "SLOTS")))
        return [self.at(port) for port in dict.fromkeys(row[2][1] for row in sorted(rows))]

    def _ports(self) -> list[int]:
        return [server.port for server in self.servers]

    def owner(self, slot: int) -> Server:
        """Return the primary that serves *slot*."""
        rows = next(rows for port in self._ports() if (rows := asked(port, "CLUSTER", "SLOTS")))
        return next(self.at(row[2][1]) for row in rows if row[0] <= slot <= row[1])

    def flush(self) -> None:
        """Forget all keys."""
        for primary in self.primaries():
            say(primary.port, "FLUSHALL")

    def heal(self) -> None:
        """Wait until every node sees every slot served, by a primary with a replica in sync."""

        def healed() -> bool:
            for port in self._ports():
                state = asked(port, "CLUSTER", "INFO") or ""
                rows = asked(port, "CLUSTER", "SLOTS") or []
                whole = sum(row[1] - row[0] + 1 for row in rows) == SLOTS
                if "cluster_state:ok" not in state or not whole:
                    return False
                if any(len(row) != 4 for row in rows):
                    return False
            told = [info(port) for port in self._ports()]
            links = [each.get("master_link_status") for each in told if each.get("role") == "slave"]
            return links == ["up"] * 3

        until(healed, "the cluster is whole", 60)

    @contextmanager
    def moving(self, slot: int, to: Server) -> Iterator[Callable[..., None]]:
        """Open *slot* for a move to the node *to*; yields what moves some of its keys."""
        source = self.owner(slot)
        names = {port: say(port, "CLUSTER", "MYID") for port in (source.port, to.port)}
        say(to.port, "CLUSTER", "SETSLOT", slot, "IMPORTING", names[source.port])
        say(source.port, "CLUSTER", "SETSLOT", slot, "MIGRATING", names[to.port])

        def move_some(count: int = 1_000_000) -> None:
            keys = say(source.port, "CLUSTER", "GETKEYSINSLOT", slot, count)
            if keys:
                say(source.port, "MIGRATE", HOST, to.port, "", 0, 5_000, "KEYS", *keys)

        yield move_some
        while say(source.port, "CLUSTER", "COUNTKEYSINSLOT", slot):
            move_some()
        for port in (to.port, source.port):
            say(port, "CLUSTER", "SETSLOT", slot, "NODE", names[to.port])
        for primary in self.primaries():
            asked(primary.port, "CLUSTER", "SETSLOT", slot, "NODE", names[to.port])

    def move(self, slot: int, to: Server) -> None:
        """Move *slot* to the node *to*."""
        with self.moving(slot, to):
            pass


def slots_of(namespace: str, shards: Iterable[int]) -> Sequence[int]:
    """Return the slots in which the shards of a namespace lie."""
    return [key_slot(prefix(namespace, shard).encode()) for shard in shards]
