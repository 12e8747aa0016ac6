"""Answers WriteTxnMarkers, with which coordinators end transactions in partitions that this broker leads.

Rules: KIP-98, KIP-664 (an administrator ends a hanging transaction with the same request).
`transactions.marker_writing` writes the markers.
"""

from __future__ import annotations

from dataclasses import dataclass

from klog.drivers.marker_queues import MarkerErrors
from klog.protocol.transaction_messages import read_markers, write_written_markers
from klog.server.network.request import Request
from klog.server.transactions.marker_writing import MarkerWriting


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersHandler:
    """Answers WriteTxnMarkers requests."""

    writing: MarkerWriting

    def handle(self, request: Request) -> None:
        """Write all markers; answer when they are replicated."""
        version = request.api_version

        def answer(found: MarkerErrors) -> None:
            errors = {producer_id: dict(sorted(each.items())) for producer_id, each in found.items()}
            request.respond([write_written_markers(version, errors)])

        self.writing.write(read_markers(version, request.body), answer)
