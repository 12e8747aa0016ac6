"""The command `klog reassign`, to which each module of this package adds its subcommands."""

from __future__ import annotations

from klog.commands.kafka_tools.command_lines import tool_app

app = tool_app(
    "reassign",
    "Move partitions between brokers and log directories of any Kafka, and see how far they are.",
    {
        "--generate": "generate",
        "--execute": "execute",
        "--verify": "verify",
        "--cancel": "cancel",
        "--list": "list",
    },
    (
        "klog reassign plan --drain 3 > plan.json",
        "klog reassign execute --reassignment-json-file plan.json --throttle 50000000",
        "klog reassign watch",
        "klog reassign verify --reassignment-json-file plan.json",
        "klog reassign cancel --reassignment-json-file plan.json",
    ),
)


@app.callback()
def _root() -> None:
    """Let typer expect a subcommand, however many there are."""
