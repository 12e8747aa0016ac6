"""Requests about who a client is: SASL after the login, SCRAM credentials of users, delegation tokens."""
