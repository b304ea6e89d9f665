"""Parser for mailboxes (mbox): a list of their mails, each of which is an attachment."""

import re
from collections.abc import Iterator
from dataclasses import replace
from email.parser import BytesHeaderParser

from ingest.parse.composer import Composer
from ingest.parse.mail import file_name, header_of
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import MAX_ATTACHMENTS, Attachment, Parsed
from ingest.parse.sniff import MAIL_START, Format
from ingest.parse.text_tables import table_lines
from ragkv.errors import TooLarge

_QUOTED = re.compile(rb"^>(?=>*From )", re.MULTILINE)
_LISTED = ("Date", "From", "Subject")


def read_mailbox(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Date, sender and subject of each mail. The mails are attachments, in order."""
    mails = list(_mails(body))
    headers = [BytesHeaderParser().parsebytes(mail) for mail in mails]
    rows = [[header_of(mail, name) for name in _LISTED] for mail in headers]
    composer = Composer()
    composer.block("\n".join(table_lines(_LISTED, rows)))
    names = (file_name(subject) for _, _, subject in rows)
    attachments = tuple(Attachment(name, mail) for name, mail in zip(names, mails, strict=True))
    return replace(composer.parsed(fallback_title, Format.MBOX), attachments=attachments)


def _mails(body: bytes) -> Iterator[bytes]:
    """Each mail as it was sent: without the line that begins it, and lines `>From` as they were."""
    begins = list(MAIL_START.finditer(body))
    if len(begins) > MAX_ATTACHMENTS:
        raise TooLarge(f"it has more than {MAX_ATTACHMENTS:,} mails: split it")
    for begin, end in zip(begins, [*(match.start() for match in begins[1:]), len(body)], strict=True):
        yield _QUOTED.sub(b"", body[begin.end() : end])
