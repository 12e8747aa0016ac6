"""Starts a broker for your tests: a process on a free port, whose files are removed at the end.

    import klog.testing

    with klog.testing.broker() as broker:
        broker.create_topic("orders", partitions=3)
        produce_to(broker.bootstrap_servers)

With pytest, use the fixture `klog_broker`. It needs only Python: no container, no Java.
"""

from klog.testing.process import BrokerFailedError, BrokerProcess, broker

__all__ = ["BrokerFailedError", "BrokerProcess", "broker"]
