"""Plan: the layout of a database and what is left to apply, without changing anything."""

from tarry.stores.postgres import schema
from tarry.stores.postgres.errors import unreached
from tarry.stores.postgres.links import LinkLostError, connected
from tarry.stores.postgres.url import parse


def plan(url: str) -> tuple[int, list[tuple[str, str]]]:
    """Return the layout at *url*, and the name and SQL of each step that is left."""
    place = parse(url)
    link = connected(place, place.connect_timeout)
    try:
        present = schema.refuse_newer(schema.layout(link, place), place)
    except LinkLostError as error:
        raise unreached(str(error), place.text) from error
    finally:
        link.close()
    steps = schema.pending(present)
    return present, [
        (f"{step.number:04d} {step.name}", schema.sql(step, place.schema)) for step in steps
    ]
