"""A loan that is 7 days overdue changes its status, and the reader gets a mail.

The mail goes out by SMTP to a real server on this machine, which prints it; the week is virtual.
The handler changes the status first and sends last: when the mail server fails, the retry finds the
status changed already, and still has to send.

    python examples/overdue_reminder.py        # needs aiosmtpd for the mail server
"""

import os
import smtplib
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage

from tarry import Backoff, Skip, Tarry
from tarry.testing import virtual

app = Tarry("sqlite:///library.db", namespace="library")
loans: dict[int, str] = {}
OVERDUE = timedelta(days=7)


@app.task("loan.overdue", key="loan:{loan_id}", retry=Backoff.ladder(["1m", "10m", "1h"]))
def remind(loan_id: int, address: str) -> None:
    if loans[loan_id] == "returned":
        raise Skip("returned")
    loans[loan_id] = "overdue"
    mail = EmailMessage()
    mail["From"], mail["To"] = "library@example.org", address
    mail["Subject"] = f"Loan {loan_id} is {OVERDUE.days} days overdue"
    mail.set_content("Please bring the book back.")
    server = os.environ.get("SMTP_SERVER", "localhost:25")
    with smtplib.SMTP(server, timeout=10) as smtp:
        smtp.send_message(mail)


def lend(loan_id: int, address: str, until: datetime) -> None:
    loans[loan_id] = "lent"
    remind.schedule(until + OVERDUE, loan_id=loan_id, address=address)


def give_back(loan_id: int) -> None:
    loans[loan_id] = "returned"
    remind.cancel(loan_id=loan_id)


def main() -> None:
    from smtp_sink import SmtpSink  # noqa: PLC0415 - only the story needs a mail server

    with SmtpSink() as sink, virtual(app) as t:
        os.environ["SMTP_SERVER"] = sink.address
        until = datetime.fromtimestamp(t.now() / 1_000, UTC) + timedelta(days=14)
        lend(1, "ada@example.org", until)
        lend(2, "bob@example.org", until)
        give_back(2)
        t.advance("20d")
        print(f"after 20 days: {loans}, {len(sink.mails)} mails")
        t.advance("1d")
        print(f"after 21 days: {loans}, {len(sink.mails)} mails")
        for mail in sink.mails:
            print(f"to {mail['To']}: {mail['Subject']}")


if __name__ == "__main__":
    main()
