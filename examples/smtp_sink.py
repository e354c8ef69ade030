"""A mail server on this machine that keeps what it gets; for the examples that send mail."""

from asyncio import Server
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session


class SmtpSink(Controller):
    """Takes mails on a free port while the block lasts; the first *refusals* are put off."""

    def __init__(self, refusals: int = 0) -> None:
        self.mails: list[EmailMessage] = []
        self.refusals = refusals
        super().__init__(self, hostname="127.0.0.1", port=0)

    @property
    def address(self) -> str:
        """Where it listens, as smtplib takes it: host:port."""
        return f"127.0.0.1:{self.port}"

    async def handle_DATA(  # noqa: N802 - the name that aiosmtpd calls
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        if self.refusals:
            self.refusals -= 1
            return "451 try again later"
        mail = message_from_bytes(envelope.original_content or b"", policy=policy.default)
        self.mails.append(mail)
        return "250 OK"

    def _trigger_server(self) -> None:
        # The system has chosen the port by now; aiosmtpd would connect to port 0.
        assert isinstance(self.server, Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
