"""A trip that the passenger has not rated 48 hours after its end gets five stars.

A night's trips are scheduled in bulk: every request is checked before the first is written, and the
store gets them in chunks. A rating cancels the task.

    python examples/rating_after_48h.py
"""

from collections.abc import Iterable

from tarry import Tarry
from tarry.testing import virtual

app = Tarry("sqlite:///trips.db", namespace="trips")
ratings: dict[int, int] = {}


@app.task("trip.five_stars", key="trip:{trip_id}")
def five_stars(trip_id: int) -> None:
    ratings.setdefault(trip_id, 5)


def ended(trip_ids: Iterable[int]) -> int:
    """Note that trips have ended; returns how many wait for a rating now."""
    answers = app.schedule_many(five_stars.build("48h", trip_id=trip_id) for trip_id in trip_ids)
    return len(answers)


def rate(trip_id: int, stars: int) -> None:
    ratings[trip_id] = stars
    five_stars.cancel(trip_id=trip_id)


def main() -> None:
    with virtual(app) as t:
        print(f"{ended(range(2_000))} trips have ended")
        rate(7, stars=2)
        t.advance("47h59m")
        print(f"after 47h59m: {len(ratings)} trip is rated")
        t.advance("1m")
        print(f"after 48h: {len(ratings)} trips are rated, trip 7 with {ratings[7]} stars")


if __name__ == "__main__":
    main()
