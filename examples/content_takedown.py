"""An article is taken down at a date: an instant, or a time of day somewhere in the world.

The clock's date is virtual here, so that December comes at once.

    python examples/content_takedown.py
"""

from datetime import UTC, datetime

from tarry import Tarry
from tarry.due import When, format_instant
from tarry.testing import virtual

app = Tarry("sqlite:///articles.db", namespace="articles")
online: set[str] = set()


@app.task("article.take_down", key="article:{slug}")
def take_down(slug: str) -> None:
    online.discard(slug)


def publish(slug: str, until: When) -> int:
    """Put an article online until then; returns the instant of its end."""
    online.add(slug)
    return take_down.schedule(until, slug=slug).due


def main() -> None:
    november = datetime(2026, 11, 1, tzinfo=UTC)
    with virtual(app, now=int(november.timestamp() * 1_000)) as t:
        ends: dict[str, When] = {
            "sale": "2026-12-01 09:00 Asia/Shanghai",
            "election": datetime(2026, 11, 3, 20, 0, tzinfo=UTC),
            "licence": "2026-11-30T23:59:59+01:00",
        }
        for slug, until in ends.items():
            print(f"{slug} is online until {format_instant(publish(slug, until))}")
        for _ in range(3):
            [task, *_] = t.pending()
            t.advance((task.due - t.now()) / 1_000)
            print(f"{format_instant(t.now())}: online {sorted(online)}")


if __name__ == "__main__":
    main()
