"""A broker for your tests: in a process of its own, on a free port, in a directory that is gone afterwards.

    import klog.testing

    with klog.testing.broker() as broker:
        broker.create_topic("orders", partitions=3)
        produce_to(broker.bootstrap_servers)

With pytest, ask for the fixture `klog_broker`. Nothing but Python is needed: no container, no Java.
"""

from klog.testing.process import BrokerFailedError, BrokerProcess, broker

__all__ = ["BrokerFailedError", "BrokerProcess", "broker"]
