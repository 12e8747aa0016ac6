"""`klog tokens`: makes, renews, ends and describes delegation tokens (KIP-48).

Options have the names of `kafka-delegation-tokens`, and its command lines work too. The secret of a token is
shown once, when it is made.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from klog.commands.kafka_tools.command_lines import AsKafka, tool_app
from klog.commands.shared.cells import human_time
from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_line, print_note
from klog.commands.shared.option_sets import argument, flag, optional, valued
from klog.commands.shared.output import OutputOptions, WatchOptions
from klog.commands.shared.tables import Fields, Row, row_of
from klog.commands.shared.terminal import agree
from klog.commands.shared.usage import missing
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.admin.requests.delegation_tokens import Token
    from klog.client.cluster import Cluster

app = tool_app(
    "tokens",
    "Make delegation tokens of any Kafka, logins that end; renew, end and describe them.",
    {"--create": "create", "--renew": "renew", "--expire": "expire", "--describe": "describe"},
    (
        "klog tokens create --renewer-principal User:scheduler",
        "klog tokens describe",
        "klog tokens renew TOKEN",
        "klog tokens expire TOKEN",
    ),
)

_HIDDEN: Final = "(shown once)"
_TIMES: Final = ("issued", "expires", "ends")
_FIELDS: Final[Fields[Token]] = {
    "token": lambda token: token.token_id,
    "owner": lambda token: token.owner,
    "requester": lambda token: token.requester,
    "renewers": lambda token: list(token.renewers),
    "issued": lambda token: token.issued_ms,
    "expires": lambda token: token.expires_ms,
    "ends": lambda token: token.ends_ms,
}
_TOKEN: Final[str | None] = argument("TOKEN", "The id of the token.")
_HMAC: Final[str | None] = valued("BASE64", "", "--hmac", hidden=True)


def _principals(given: Sequence[str] | None) -> tuple[str, ...]:
    """Principals of an option. Raises UsageError."""
    found = tuple(each.strip() for each in given or ())
    for each in found:
        if not all(each.partition(":")):
            raise UsageError(f"{each!r} is no principal", cure="User:NAME")
    return found


def _shown(row: Row, output: OutputOptions) -> Row:
    """The row with times that people can read, if it is for people."""
    if not output.for_people:
        return row
    return {name: human_time(int(str(each))) if name in _TIMES else each for name, each in row.items()}


@app.command("create")
def create(
    connection: ConnectionOptions,
    change: ChangeOptions,
    owner_principal: str | None = valued("User:NAME", "Whose token it is. [default: the user that asks]"),
    renewer_principal: list[str] | None = valued(
        "User:NAME", "Who may renew and end it, beside the owner (repeatable)."
    ),
    max_life_time_period: int = optional(
        -1, "How long it lives at most; -1: as long as the brokers allow.", metavar="MS"
    ),
    as_kafka: AsKafka = False,
) -> None:
    """Make a token. Prints its id and its HMAC, which is its secret and is never shown again.

    A client logs in by SCRAM with the id as user name, the HMAC as password and tokenauth="true" in
    sasl.jaas.config. The brokers make tokens only on connections with SASL, or TLS with a certificate.

    Examples:

        klog tokens create
        klog tokens create --renewer-principal User:scheduler --max-life-time-period 3600000 -o json
    """
    from klog.admin.requests.delegation_tokens import create_token

    renewers = _principals(renewer_principal)
    owner = next(iter(_principals([owner_principal] if owner_principal else None)), None)
    if change.dry_run:
        with connection.cluster() as cluster:
            cluster.any_connection()
        change.conclude([Outcome("a token", {"owner": owner}, "would be made")])
        return
    with connection.cluster() as cluster:
        token = create_token(cluster, renewers, owner, max_life_time_period)
    if as_kafka and change.for_people:
        print_line(f"Created delegation token with tokenId : {token.token_id}")
        print_as_kafka([token], shows_secret=True)
        return
    secret = b64encode(token.hmac).decode()
    row = {"token": token.token_id, "hmac": secret, **row_of(_FIELDS, token)}
    if not change.for_people:
        change.conclude([Outcome(token.token_id, row, "created")])
        return
    change.show([_shown(row, change)], aside="hmac")
    print_note(
        "the HMAC is the token's password. It is not shown again: keep it where only the client reads it"
    )


def _chosen(cluster: Cluster, token_id: str | None, hmac: str | None) -> tuple[str, bytes]:
    """The name and the secret of the token that is meant. The brokers give the secret to those who may see
    the token. Raises UsageError, ClientError.
    """
    from klog.admin.requests.delegation_tokens import describe_tokens
    from klog.client.errors import ClientError

    if token_id is None:
        if hmac is None:
            raise missing("TOKEN, which klog tokens describe shows")
        try:
            return "the token", b64decode(hmac, validate=True)
        except binascii.Error as error:
            raise UsageError("--hmac is no base64") from error
    found = next((each for each in describe_tokens(cluster) if each.token_id == token_id), None)
    if found is None:
        raise ClientError(f"there is no token {token_id} that this user may see", cure="klog tokens describe")
    return token_id, found.hmac


@app.command("renew")
def renew(
    connection: ConnectionOptions,
    change: ChangeOptions,
    token: str | None = _TOKEN,
    renew_time_period: int = optional(
        -1, "For how long from now it is valid; -1: as the brokers say.", metavar="MS"
    ),
    hmac: str | None = _HMAC,
    as_kafka: AsKafka = False,
) -> None:
    """Let a token be valid for longer, at most until its life ends. The owner and the renewers may.

    Examples:

        klog tokens renew TOKEN
        klog tokens renew TOKEN --renew-time-period 3600000
    """
    from klog.admin.requests.delegation_tokens import renew_token

    with connection.cluster() as cluster:
        name, secret = _chosen(cluster, token, hmac)
        expires_ms = None if change.dry_run else renew_token(cluster, secret, renew_time_period)
    if as_kafka and expires_ms is not None:
        print_line(f"Completed renew operation. New expiry date : {_minute(expires_ms)}")
        return
    until = "would be renewed" if expires_ms is None else f"renewed until {human_time(expires_ms)}"
    _conclude(change, name, expires_ms, until)


@app.command("expire")
def expire(
    connection: ConnectionOptions,
    change: ChangeOptions,
    token: str | None = _TOKEN,
    expiry_time_period: int = optional(
        -1, "How long from now it is still valid; -1: remove it now.", metavar="MS"
    ),
    hmac: str | None = _HMAC,
    yes: bool = flag("Do it without asking.", "--yes", "-y"),
    as_kafka: AsKafka = False,
) -> None:
    """Remove a token, or say when it expires. Asks before it removes one; elsewhere it needs --yes.

    Nobody can log in with it any more. Connections that are open stay open until their session ends.

    Examples:

        klog tokens expire TOKEN
        klog tokens expire TOKEN --expiry-time-period 60000 --yes
    """
    from klog.admin.requests.delegation_tokens import expire_token

    with connection.cluster() as cluster:
        name, secret = _chosen(cluster, token, hmac)
        removes = expiry_time_period < 0
        question = f"Remove {name}?" if removes else f"Let {name} expire in {expiry_time_period} ms?"
        agree(question, yes=yes or change.dry_run or as_kafka)
        expires_ms = None if change.dry_run else expire_token(cluster, secret, expiry_time_period)
    if as_kafka and expires_ms is not None:
        print_line(f"Completed expire operation. New expiry date : {_minute(expires_ms)}")
        return
    done = "removed" if removes else "set to expire"
    _conclude(change, name, expires_ms, f"would be {done}" if expires_ms is None else done)


def _conclude(change: ChangeOptions, name: str, expires_ms: int | None, done: str) -> None:
    change.conclude([Outcome(name, {"token": name, "expires": expires_ms}, done)])


@app.command("describe")
def describe(
    connection: ConnectionOptions,
    output: WatchOptions,
    owner_principal: list[str] | None = valued(
        "User:NAME", "Tokens of this owner or renewer (repeatable). [default: all]"
    ),
    as_kafka: AsKafka = False,
) -> None:
    """Show the tokens that the user owns, asked for or may renew, and others that ACLs let it see.

    Examples:

        klog tokens describe
        klog tokens describe --owner-principal User:alice -o json
    """
    from klog.admin.requests.delegation_tokens import describe_tokens

    owners = _principals(owner_principal)

    def show(cluster: Cluster) -> None:
        found = describe_tokens(cluster, owners or None)
        if as_kafka and output.for_people:
            print_line(f"Total number of tokens : {len(found)}")
            print_as_kafka(found, shows_secret=False)
            return
        output.show(
            [_shown(row_of(_FIELDS, each), output) for each in found],
            fields=_FIELDS,
            none="there are no tokens that this user may see (klog tokens create makes one)",
        )

    output.over(connection, show)


def print_as_kafka(tokens: Iterable[Token], *, shows_secret: bool) -> None:
    """Print tokens as kafka-delegation-tokens does, but the secrets only if that is asked for."""
    line = "{:15} {:30} {:15} {:15} {:25} {:15} {:15} {:15}".format
    print_line("")
    print_line(
        line("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
    )
    for each in tokens:
        secret = b64encode(each.hmac).decode() if shows_secret else _HIDDEN
        times = map(_minute, (each.issued_ms, each.expires_ms, each.ends_ms))
        renewers = f"[{', '.join(each.renewers)}]"
        print_line("")
        print_line(line(each.token_id, secret, each.owner, each.requester, renewers, *times))


def _minute(moment_ms: int) -> str:
    """A time as Kafka's tool prints it: `2026-11-27T03:15`."""
    return human_time(moment_ms)[:16].replace(" ", "T")
