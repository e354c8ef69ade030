"""From a redis URL to a place: what is understood and what refused; no password is shown."""

import pytest

from tarry.errors import StoreUrlError
from tarry.stores.redis.url import Place, parse
from tarry.stores.shown import shown_url

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", Place(how="one", addresses=(("localhost", 6379),))),
        ("redis://host", Place(how="one", addresses=(("host", 6379),))),
        ("redis://host:7000/3", Place(how="one", addresses=(("host", 7000),), db=3)),
        ("redis://[::1]:7000", Place(how="one", addresses=(("::1", 7000),))),
        ("redis://[::1]", Place(how="one", addresses=(("::1", 6379),))),
        (
            "redis://me:p%40ss@host",
            Place(how="one", addresses=(("host", 6379),), username="me", password="p@ss"),
        ),
        ("redis://:p@host", Place(how="one", addresses=(("host", 6379),), password="p")),
        (
            "rediss://host?ssl_ca_certs=/ca.pem&ssl_check_hostname=false",
            Place(
                how="one",
                addresses=(("host", 6379),),
                tls=True,
                tls_options={"ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False},
            ),
        ),
        (
            "redis+sentinel://a,b:26380/primary/2?sentinel_password=x",
            Place(
                how="sentinel",
                addresses=(("a", 26379), ("b", 26380)),
                service="primary",
                db=2,
                sentinel_password="x",
            ),
        ),
        (
            "redis+cluster://a:1,b:2?shards=4&wait_replicas=1&timeout=0.5&connect_timeout=3",
            Place(
                how="cluster",
                addresses=(("a", 1), ("b", 2)),
                shards=4,
                wait_replicas=1,
                timeout=0.5,
                connect_timeout=3,
            ),
        ),
        ("rediss+cluster://a", Place(how="cluster", addresses=(("a", 6379),), tls=True)),
    ],
)
def test_a_url_names_a_place(url: str, expected: Place) -> None:
    assert parse(url) == expected


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://host:port", "is no port"),
        ("redis://host:0", "is no port"),
        ("redis://host:65536", "is no port"),
        ("redis://host:٣", "is no port"),
        ("redis://host/name", "no number of a database"),
        ("redis://host/1/2", "no number of a database"),
        ("redis+cluster://host/1", "only database 0"),
        ("redis+sentinel://host", "name of the service"),
        ("redis+sentinel://host/primary/x", "no number of a database"),
        ("redis://host?shards=0", "shards is a number from 1"),
        ("redis://host?shards=1.5", "shards is a number from 1"),
        ("redis://host?wait_replicas=-1", "wait_replicas is a number from 0"),
        ("redis://host?timeout=nan", "timeout is a number"),
        ("redis://host?timeout=soon", "timeout is a number"),
        ("redis://host?sync=full", "no option 'sync'"),
        ("redis://host?ssl_ca_certs=/ca.pem", "no option 'ssl_ca_certs'"),
        ("redis://host?shards", "cannot be used"),
        ("redis://[::1", "cannot be used"),
    ],
)
def test_what_cannot_be_used_is_refused_without_its_password(url: str, says: str) -> None:
    with_secret = url.replace("://", f"://me:{SECRET}@")

    with pytest.raises(StoreUrlError, match=says) as raised:
        parse(with_secret)

    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host", "redis://host"),
        (f"redis://:{SECRET}@host:1/0", "redis://:***@host:1/0"),
        (f"redis://me:{SECRET}@host?shards=2", "redis://me:***@host?shards=2"),
        (f"redis://me:p@{SECRET}@host", "redis://me:***@host"),
        (
            f"redis+sentinel://a,b/s?sentinel_password={SECRET}&shards=1",
            "redis+sentinel://a,b/s?sentinel_password=***&shards=1",
        ),
        ("sqlite:///tarry.db?sync=normal", "sqlite:///tarry.db?sync=normal"),
        ("memory:", "memory:"),
        ("no url", "no url"),
    ],
)
def test_a_url_is_shown_without_its_passwords(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_place_shows_no_secrets() -> None:
    place = parse(
        f"redis+sentinel://me:{SECRET}@a,b/s?sentinel_username=u&sentinel_password={SECRET}"
    )

    assert SECRET not in repr(place)
    assert SECRET not in str(place)
    assert place.text == "a:26379,b:26379/s"
