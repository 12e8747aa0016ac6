"""Who a client is: SASL mechanisms of a server, and the exchange that they take part in."""
