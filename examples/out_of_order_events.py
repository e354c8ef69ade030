"""An event that arrives before what it depends on waits for it, and is given up after an hour.

"Account linked" may overtake "user created". The handler snoozes until the user is there: a snooze
is no failure, and does not use up a retry. After 720 snoozes (an hour) the event becomes a dead
letter that says why.

    python examples/out_of_order_events.py
"""

from tarry import Context, Dead, Snooze, Tarry
from tarry.testing import virtual

app = Tarry("sqlite:///accounts.db", namespace="accounts")
users: set[str] = set()
links: dict[str, str] = {}
MOST_SNOOZES = 720


@app.task("account.link", key="link:{user}")
def link_account(ctx: Context, user: str, provider: str) -> None:
    if user not in users:
        if ctx.snoozes >= MOST_SNOOZES:
            raise Dead(f"user {user} never came")
        raise Snooze("5s", "the user is not there yet")
    links[user] = provider


def account_linked(user: str, provider: str) -> None:
    """Receive the event that may come too early."""
    link_account.schedule("now", user=user, provider=provider)


def user_created(user: str) -> None:
    """Receive the event that the other one depends on; what waits for it runs at once."""
    users.add(user)
    link_account.run_now(user=user)


def main() -> None:
    with virtual(app) as t:
        account_linked("ada", "github")
        account_linked("eve", "github")
        attempts = t.advance("30s")
        print(f"after 30 s: {attempts} attempts, linked: {links}")
        user_created("ada")
        t.advance("1ms")
        print(f"ada is created: linked: {links}")
        t.advance("1h")
        for task in t.dead():
            print(f"dead letter {task.ref} after {task.snoozes} snoozes: {task.reason}")


if __name__ == "__main__":
    main()
