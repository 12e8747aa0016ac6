"""`klog users`: lists users with SCRAM credentials, sets their passwords, removes them.

The command lines of `kafka-configs --entity-type users` for SCRAM work too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands.cluster.assignments import parse_pairs, split_list
from klog.commands.kafka_tools.command_lines import AsKafka, tool_app
from klog.commands.shared.changing import ChangeOptions, Outcome
from klog.commands.shared.connection import ConnectionOptions
from klog.commands.shared.messages import print_line
from klog.commands.shared.option_sets import argument, flag, optional, valued
from klog.commands.shared.output import WatchOptions
from klog.commands.shared.terminal import agree
from klog.commands.shared.usage import missing
from klog.formats.errors import FormatError, StorageError, UsageError

if TYPE_CHECKING:
    from klog.admin.requests.scram_users import ScramMechanism, ScramUser, Upsertion
    from klog.client.cluster import Cluster

app = tool_app(
    "users",
    "List users with SCRAM credentials of any Kafka, set their passwords, remove them.",
    {"--describe": "list", "--alter": "alter"},
    (
        "klog users list",
        "klog users set-password alice",
        "klog users delete alice",
    ),
)

_SALT_BYTES: Final = 24
_CREDENTIAL: Final = re.compile(r"\[(?P<inner>.*)\]", re.DOTALL)

Name = Annotated[str, typer.Argument(metavar="USER", help="The user.")]
_MECHANISMS: Final[list[str] | None] = valued(
    "NAME", "SCRAM-SHA-256 or SCRAM-SHA-512 (repeatable). [default: SCRAM-SHA-512]", "--mechanism"
)
_ENTITY_TYPE: Final[str | None] = valued("users", "", "--entity-type", hidden=True)
_ENTITY_NAME: Final[str | None] = valued("USER", "", "--entity-name", "--user", hidden=True)


def mechanism_of(text: str) -> ScramMechanism:
    """A mechanism by its name. Raises UsageError."""
    from klog.admin.requests.scram_users import ScramMechanism

    try:
        return ScramMechanism[text.upper().replace("-", "_")]
    except KeyError as error:
        known = " or ".join(each.title for each in ScramMechanism)
        raise UsageError(f"--mechanism {text} is unknown", cure=known) from error


@app.command("list")
def list_users(
    connection: ConnectionOptions,
    output: WatchOptions,
    users: list[str] | None = argument("[USER]...", "Only these users."),
    entity_type: str | None = _ENTITY_TYPE,
    entity_name: str | None = _ENTITY_NAME,
    as_kafka: AsKafka = False,
) -> None:
    """Show the users that have SCRAM credentials, with mechanisms and iterations. Nobody knows passwords.

    Examples:

        klog users list
        klog users list alice -o json
    """
    from klog.admin.requests.scram_users import describe_users
    from klog.client.errors import ClientError

    _check_type(entity_type)
    wanted = [*(users or ()), *([entity_name] if entity_name else ())]

    def show(cluster: Cluster) -> None:
        found = describe_users(cluster, wanted or None)
        if as_kafka and output.for_people:
            print_credentials(found)
            return
        output.show(
            [
                {"user": each.name, "mechanism": name.title, "iterations": count}
                for each in found
                for name, count in each.iterations.items()
            ],
            fields=("user", "mechanism", "iterations"),
            none="" if wanted else "no user has SCRAM credentials (klog users set-password USER makes one)",
        )
        unknown = sorted(set(wanted) - {each.name for each in found})
        if unknown:
            raise ClientError(
                f"{', '.join(unknown)} {'has' if len(unknown) == 1 else 'have'} no SCRAM credentials",
                cure="klog users set-password USER makes one",
            )

    output.over(connection, show)


def print_credentials(found: Iterable[ScramUser]) -> None:
    """Print mechanisms and iterations as kafka-configs does."""
    for each in found:
        credentials = ", ".join(f"{name.title}=iterations={count}" for name, count in each.iterations.items())
        print_line(f"SCRAM credential configs for user-principal '{each.name}' are {credentials}")


def _check_type(entity_type: str | None) -> None:
    if entity_type not in (None, "users"):
        raise UsageError(f"--entity-type {entity_type} are no users", cure="klog configs, or klog quotas")


@app.command("set-password")
def set_password(
    connection: ConnectionOptions,
    change: ChangeOptions,
    user: Name,
    mechanism: list[str] | None = _MECHANISMS,
    iterations: int = optional(4096, "Rounds of hashing.", metavar="N", least=4096, most=16384),
    password_file: Path | None = valued("FILE", "A file whose first line is the password."),
    broker_config: Path | None = valued(
        "FILE", "A broker's properties file: write into its metadata.", "--broker-config"
    ),
) -> None:
    """Set the password of a user, who need not exist. It is asked for twice, or read from a file or a pipe.

    Only salted hashes are sent. A password is never taken from the command line, which others can see.

    With --broker-config no broker is asked, for instance before the first start of a cluster whose clients
    all have to log in. A broker with metadata of its own must not run meanwhile.

    Examples:

        klog users set-password alice
        klog users set-password alice --password-file alice.txt --mechanism SCRAM-SHA-256
        klog users set-password admin --broker-config server.properties

        pass show kafka/alice | klog users set-password alice
    """
    from klog.admin.requests.scram_users import ScramMechanism, alter_users

    wanted = [mechanism_of(each) for each in mechanism or ()] or [ScramMechanism.SCRAM_SHA_512]
    password = _password(user, password_file)
    if broker_config is not None:
        _write_into_metadata(broker_config, user, password, wanted, iterations, dry_run=change.dry_run)
    else:
        with connection.cluster() as cluster:
            for each in (
                () if change.dry_run else wanted
            ):  # KRaft refuses two changes of a user in one request
                alter_users(cluster, [_credential(user, password, each, iterations)])
    titles = ", ".join(each.title for each in wanted)
    done = f"the password of {titles} {'would be' if change.dry_run else 'was'} set"
    change.conclude([Outcome(user, {"user": user, "mechanisms": [each.title for each in wanted]}, done)])


def _write_into_metadata(
    file: Path, user: str, password: str, mechanisms: list[ScramMechanism], iterations: int, *, dry_run: bool
) -> None:
    import secrets

    from klog.security.authentication.scram_credentials import credential_of_password
    from klog.server.startup.config_reading import read_config
    from klog.server.startup.first_users import set_credentials

    config = read_config(str(file), ())
    credentials = {
        each.title: credential_of_password(
            each.title, password, secrets.token_urlsafe(_SALT_BYTES).encode(), iterations
        )
        for each in mechanisms
    }
    if not dry_run:
        set_credentials(config, user, credentials)


def _credential(user: str, password: str, mechanism: ScramMechanism, iterations: int) -> Upsertion:
    import secrets

    from klog.admin.requests.scram_users import salted

    return salted(user, password, mechanism, secrets.token_urlsafe(_SALT_BYTES).encode(), iterations)


def _password(user: str, file: Path | None) -> str:
    """The password, from the file, the terminal or a pipe. Raises UsageError if it is empty."""
    import sys

    from klog.commands.shared.client_properties import warn_of_readers

    try:
        if file is not None:
            text = file.read_text("utf-8").split("\n", 1)[0]
            warn_of_readers([file])
        elif sys.stdin.isatty():
            text = typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        else:
            text = sys.stdin.readline()
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", file=str(file)) from error
    except UnicodeDecodeError as error:
        raise FormatError("is no text in UTF-8", file=str(file or "stdin")) from error
    password = text.rstrip("\r\n")
    if not password:
        raise UsageError("the password is empty", cure="type it, or give --password-file FILE")
    return str(password)


@app.command("delete")
def delete_user(
    connection: ConnectionOptions,
    change: ChangeOptions,
    user: Name,
    mechanism: list[str] | None = _MECHANISMS,
    yes: bool = flag("Do it without asking.", "--yes", "-y"),
) -> None:
    """Remove the SCRAM credentials of a user: all, or those of --mechanism. Asks; elsewhere it needs --yes.

    ACLs and quotas of the user stay. Connections that are open stay open.

    Examples:

        klog users delete alice
        klog users delete alice --mechanism SCRAM-SHA-256 --yes
    """
    from klog.admin.requests.scram_users import Deletion, alter_users, describe_users
    from klog.client.errors import ClientError

    wanted = {mechanism_of(each) for each in mechanism or ()}
    with connection.cluster() as cluster:
        found = [name for each in describe_users(cluster, [user]) for name in each.iterations]
        deleted = [name for name in found if not wanted or name in wanted]
        if not deleted or wanted - set(found):
            raise ClientError(
                f"{user} has no such SCRAM credentials", cure="klog users list shows what there is"
            )
        titles = ", ".join(each.title for each in deleted)
        agree(f"Remove {titles} of {user}?", yes=yes or change.dry_run)
        for name in () if change.dry_run else deleted:  # KRaft refuses two changes of a user in one request
            alter_users(cluster, [], [Deletion(user, name)])
    done = f"{titles} {'would be removed' if change.dry_run else 'removed'}"
    change.conclude([Outcome(user, {"user": user, "mechanisms": [each.title for each in deleted]}, done)])


@app.command("alter", hidden=True)
def alter_user(
    connection: ConnectionOptions,
    entity_type: str | None = _ENTITY_TYPE,
    entity_name: str | None = _ENTITY_NAME,
    add_config: list[str] | None = valued("K=[...]", ""),
    delete_config: list[str] | None = valued("K,K", ""),
    as_kafka: AsKafka = False,  # noqa: ARG001 (the command is Kafka's only)
) -> None:
    """Set and remove SCRAM credentials with the options of kafka-configs.

    Examples:

        klog users --alter --entity-type users --entity-name alice
            --add-config 'SCRAM-SHA-256=[iterations=8192,password=secret]'
    """
    from klog.admin.requests.scram_users import Deletion, alter_users

    _check_type(entity_type)
    if entity_name is None:
        raise missing("--entity-name USER")
    pairs = [pair for text in add_config or () for pair in split_list(text)]
    upsertions = [
        credential_of(entity_name, name, value) for name, value in parse_pairs("--add-config", pairs).items()
    ]
    deletions = [
        Deletion(entity_name, mechanism_of(name.strip()))
        for text in delete_config or ()
        for name in split_list(text)
    ]
    if not upsertions and not deletions:
        raise missing("--add-config or --delete-config")
    with connection.cluster() as cluster:
        alter_users(cluster, upsertions, deletions)
    print_line(f"Completed updating config for user {entity_name}.")


def credential_of(user: str, name: str, value: str) -> Upsertion:
    """The credential of kafka-configs' `SCRAM-SHA-256=[iterations=8192,password=x]`. Raises UsageError."""
    from klog.admin.requests.scram_users import LEAST_ITERATIONS

    mechanism = mechanism_of(name)
    found = _CREDENTIAL.fullmatch(value)
    inner = value if found is None else found["inner"]
    given = parse_pairs("--add-config", [part for part in inner.split(",") if part])
    text = given.pop("iterations", str(LEAST_ITERATIONS))
    password = given.pop("password", None)
    if given or password is None or not text.lstrip("-").isdecimal():
        raise UsageError(
            f"--add-config {name} is no credential", cure=f"{name}=[iterations=8192,password=SECRET]"
        )
    iterations = int(text) if int(text) != -1 else LEAST_ITERATIONS
    if iterations < LEAST_ITERATIONS:
        raise UsageError(
            f"Iterations {iterations} is less than the minimum {LEAST_ITERATIONS} required for {name}"
        )
    return _credential(user, password, mechanism, iterations)
