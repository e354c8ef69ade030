"""The scenarios of the examples on virtual time: what must happen, and what must not."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pytest
from tests.examples.conftest import anywhere

from tarry import CancelResult, Tarry
from tarry.testing import virtual

Load = Callable[[str], ModuleType]


@pytest.fixture(autouse=True, params=anywhere())
def _medium(request: pytest.FixtureRequest) -> None:
    if request.param != "memory":
        request.getfixturevalue(f"on_{request.param}")


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000)


# ---- an order is closed after 30 minutes unless it is paid


def test_an_unpaid_order_is_closed_after_30_minutes_and_not_before(load: Load) -> None:
    shop = load("order_auto_cancel")
    with virtual(shop.app) as t:
        shop.place(42)

        t.assert_scheduled(shop.cancel_order, order_id=42, due="30m")
        t.advance("29m59s999ms")
        assert shop.orders[42] == "open"
        t.advance("1ms")

        assert shop.orders[42] == "closed"
        assert not shop.pay(42)
        t.assert_nothing_pending()


def test_a_paid_order_is_never_closed(load: Load) -> None:
    shop = load("order_auto_cancel")
    with virtual(shop.app) as t:
        shop.place(42)
        t.advance("29m59s999ms")

        assert shop.pay(42)

        t.assert_not_scheduled(shop.cancel_order, order_id=42)
        assert t.advance("1d") == 0
        assert shop.orders[42] == "paid"


def test_a_payment_that_forgot_to_cancel_still_keeps_the_order(load: Load) -> None:
    shop = load("order_auto_cancel")
    with virtual(shop.app) as t:
        shop.place(42)
        shop.orders[42] = "paid"

        assert t.advance("30m") == 1

        assert shop.orders[42] == "paid"
        assert t.dead() == []


def test_more_time_moves_the_end_but_never_forward(load: Load) -> None:
    shop = load("order_auto_cancel")
    with virtual(shop.app) as t:
        shop.place(42)

        assert shop.more_time(42)
        assert not shop.more_time(42, pay_within="1h")

        t.advance("1h59m")
        assert shop.orders[42] == "open"
        t.advance("1m")
        assert shop.orders[42] == "closed"
        assert not shop.more_time(42)


# ---- a command times out after 5 seconds


def test_an_unanswered_command_times_out_after_5_seconds(load: Load) -> None:
    iot = load("iot_command_timeout")

    async def story() -> None:
        async with virtual(iot.app) as t:
            await iot.send("lamp", 1)
            await iot.send("lamp", 2)
            await t.aadvance("4999ms")
            assert await iot.acknowledged("lamp", 2)
            assert set(iot.commands.values()) == {"sent", "acknowledged"}

            await t.aadvance("1ms")

            assert iot.commands == {("lamp", 1): "timed out", ("lamp", 2): "acknowledged"}
            assert not await iot.acknowledged("lamp", 1)
            assert await t.aadvance("1h") == 0

    asyncio.run(story())


# ---- a merchant is told until the merchant accepts


def test_the_callback_is_repeated_after_2_4_and_8_minutes(load: Load) -> None:
    payments = load("payment_callback_backoff")
    with payments.Merchant(refusals=3) as merchant, virtual(payments.app) as t:
        payments.notify_merchant.schedule("now", order_id=42, url=merchant.url)

        calls = []
        for step in ("0s", "119s", "1s", "239s", "1s", "479s", "1s", "1d"):
            t.advance(step)
            calls.append(len(merchant.calls))

        assert calls == [1, 1, 2, 2, 3, 3, 4, 4]
        assert [call["attempt"] for call in merchant.calls] == [1, 2, 3, 4]
        t.assert_nothing_pending()
        assert t.dead() == []


def test_a_merchant_that_never_accepts_ends_as_a_dead_letter_that_can_be_revived(
    load: Load,
) -> None:
    payments = load("payment_callback_backoff")
    with payments.Merchant(refusals=99) as merchant, virtual(payments.app) as t:
        payments.notify_merchant.schedule("now", order_id=42, url=merchant.url)
        t.advance("62m")
        [dead] = t.dead()
        assert len(merchant.calls) == dead.attempt == 6
        assert "503" in dead.reason

        merchant.refusals = 0
        assert payments.notify_merchant.run_now(order_id=42)
        t.advance("1ms")

        assert len(merchant.calls) == 7
        assert t.dead() == []


# ---- five stars after 48 hours


def test_unrated_trips_get_five_stars_and_rated_ones_keep_theirs(load: Load) -> None:
    trips = load("rating_after_48h")
    with virtual(trips.app) as t:
        assert trips.ended(range(1_200)) == 1_200
        trips.rate(7, stars=2)
        assert t.advance("47h59m59s999ms") == 0

        assert t.advance("1ms") == 1_199

        assert trips.ratings.pop(7) == 2
        assert trips.ratings == {trip: 5 for trip in range(1_200) if trip != 7}


# ---- seven days overdue


def test_an_overdue_loan_changes_its_status_and_its_reader_gets_one_mail(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = load("overdue_reminder")
    start = datetime(2026, 3, 1, tzinfo=UTC)
    with load("smtp_sink").SmtpSink() as sink, virtual(library.app, now=ms(start)) as t:
        monkeypatch.setenv("SMTP_SERVER", sink.address)
        library.lend(1, "ada@example.org", start + timedelta(days=14))
        library.lend(2, "bob@example.org", start + timedelta(days=14))
        library.give_back(2)

        t.advance("20d23h")
        assert (library.loans[1], sink.mails) == ("lent", [])
        t.advance("1h")

        assert library.loans == {1: "overdue", 2: "returned"}
        [mail] = sink.mails
        assert mail["To"] == "ada@example.org"
        assert "7 days overdue" in mail["Subject"]


def test_a_mail_server_that_refuses_is_asked_again(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = load("overdue_reminder")
    start = datetime(2026, 3, 1, tzinfo=UTC)
    with load("smtp_sink").SmtpSink(refusals=2) as sink, virtual(library.app, now=ms(start)) as t:
        monkeypatch.setenv("SMTP_SERVER", sink.address)
        library.lend(1, "ada@example.org", start)

        t.advance("7d")
        assert sink.mails == []
        t.assert_scheduled(library.remind, loan_id=1, due="1m")
        t.advance("11m")

        assert len(sink.mails) == 1
        t.assert_nothing_pending()


# ---- an article goes offline at a date


@pytest.mark.parametrize(
    ("until", "end"),
    [
        ("2026-12-01 09:00 Asia/Shanghai", datetime(2026, 12, 1, 1, 0, tzinfo=UTC)),
        ("2026-12-01T09:00:00+08:00", datetime(2026, 12, 1, 1, 0, tzinfo=UTC)),
        (datetime(2026, 12, 1, 1, 0, tzinfo=UTC), datetime(2026, 12, 1, 1, 0, tzinfo=UTC)),
    ],
)
def test_an_article_is_online_until_its_date(
    load: Load, until: str | datetime, end: datetime
) -> None:
    articles = load("content_takedown")
    with virtual(articles.app, now=ms(end) - 60_000) as t:
        assert articles.publish("sale", until) == ms(end)

        t.advance("59s999ms")
        assert articles.online == {"sale"}
        t.advance("1ms")

        assert articles.online == set()


def test_publishing_anew_moves_the_end(load: Load) -> None:
    articles = load("content_takedown")
    with virtual(articles.app) as t:
        articles.publish("sale", "1d")
        articles.publish("sale", "3d")

        assert t.advance("2d") == 0
        assert articles.online == {"sale"}
        assert t.advance("1d") == 1


# ---- an event waits for what it depends on


def test_an_early_event_waits_and_runs_as_soon_as_its_user_is_there(load: Load) -> None:
    accounts = load("out_of_order_events")
    with virtual(accounts.app) as t:
        accounts.account_linked("ada", "github")
        t.advance("12s")
        task = t.assert_scheduled(accounts.link_account, user="ada", due="3s")
        assert (task.snoozes, task.failures) == (3, 0)

        accounts.user_created("ada")
        t.advance("1ms")

        assert accounts.links == {"ada": "github"}
        t.assert_nothing_pending()


def test_an_event_whose_user_never_comes_is_a_dead_letter_after_an_hour(load: Load) -> None:
    accounts = load("out_of_order_events")
    with virtual(accounts.app) as t:
        accounts.account_linked("eve", "github")

        t.advance("59m59s")
        assert t.dead() == []
        t.advance("1s")

        [dead] = t.dead()
        assert (dead.reason, dead.snoozes) == ("user eve never came", 720)
        t.assert_nothing_pending()


# ---- waiting tasks survive


def test_messages_are_delivered_in_the_order_of_their_due(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = load("recovery_after_restart")
    with virtual(messages.app) as t:
        messages.deliver.schedule("2s", "lunch")
        messages.deliver.schedule("1s", "breakfast")

        assert t.advance("2s") == 2

    told = [line.split(":")[0].strip() for line in capsys.readouterr().out.splitlines()]
    assert told == ["breakfast", "lunch"]


def test_a_waiting_message_is_there_for_the_next_process(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/messages.db"
    monkeypatch.setenv("TARRY_STORE", url)
    first = load("recovery_after_restart")
    first.deliver.schedule("1h", "lunch")
    first.app.close()

    with Tarry(url, namespace="messages") as producer:
        ref = first.deliver.ref("lunch")
        assert producer.get(ref) is not None
        assert producer.cancel(ref) is CancelResult.CANCELLED

    assert load("recovery_after_restart").deliver.get("lunch") is None
