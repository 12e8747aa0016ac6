"""Broker configs of TLS, SASL, authorisation and delegation tokens.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.key_table import config_keys

KEYS: Final = config_keys("""
authorizer.class.name | string ""
  The class that decides who may do what; kafka.security.authorizer.AclAuthorizer keeps its ACLs in
  ZooKeeper. Without a value everybody may do everything.
connection.failed.authentication.delay.ms | int 100 | at least 0
  How long a connection whose authentication failed stays open, in ms. It slows down guessing.
connections.max.reauth.ms | long 0
  After how long a SASL connection must authenticate again, in ms; 0 means never.
delegation.token.expiry.check.interval.ms | long 3600000 | at least 1
  How often expired delegation tokens are removed, in ms.
delegation.token.expiry.time.ms | long 86400000 | at least 1
  How long a delegation token is valid before it must be renewed, in ms.
delegation.token.master.key | password
  The former name of delegation.token.secret.key.
delegation.token.max.lifetime.ms | long 604800000 | at least 1
  How long a delegation token is valid with all renewals, in ms.
delegation.token.secret.key | password
  The secret that signs delegation tokens, the same on all brokers. Without it there are no delegation
  tokens.
password.encoder.cipher.algorithm | string AES/CBC/PKCS5Padding
  The cipher that encrypts dynamic secrets in ZooKeeper.
password.encoder.iterations | int 4096 | at least 1024
  How many iterations make the key that encrypts dynamic secrets.
password.encoder.key.length | int 128 | at least 8
  The length of the key that encrypts dynamic secrets, in bits.
password.encoder.keyfactory.algorithm | string
  The algorithm that makes the key that encrypts dynamic secrets. Without a value it is
  PBKDF2WithHmacSHA512.
password.encoder.old.secret | password
  The former password.encoder.secret. With it the broker reads secrets once more at its start, and encrypts
  them with the new one.
password.encoder.secret | password
  The secret that encrypts dynamic secrets. They cannot be set without it.
principal.builder.class |\
  class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder | per-broker
  The class that makes the principal of a connection, for ACLs and quotas.
sasl.client.callback.handler.class | class
  The SASL callback handler of the broker's own connections.
sasl.enabled.mechanisms | list GSSAPI | per-broker
  The SASL mechanisms that clients may use, such as PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI and
  OAUTHBEARER.
sasl.jaas.config | password | per-broker
  The JAAS login of a SASL listener. For a listener the name is
  listener.name.NAME.MECHANISM.sasl.jaas.config.
sasl.kerberos.kinit.cmd | string /usr/bin/kinit | per-broker
  The path of kinit.
sasl.kerberos.min.time.before.relogin | long 60000 | per-broker
  How long the thread that renews Kerberos tickets sleeps at least, in ms.
sasl.kerberos.principal.to.local.rules | list DEFAULT | per-broker
  The rules that make short user names of Kerberos principals. The first one that matches applies.
sasl.kerberos.service.name | string | per-broker
  The Kerberos service name of the broker, if the JAAS login does not name it.
sasl.kerberos.ticket.renew.jitter | double 0.05 | per-broker
  How much of the renewal time of a Kerberos ticket is random, 0 to 1.
sasl.kerberos.ticket.renew.window.factor | double 0.8 | per-broker
  After which part of its lifetime a Kerberos ticket is renewed, 0 to 1.
sasl.login.callback.handler.class | class
  The SASL login callback handler.
sasl.login.class | class
  The class that logs in for SASL.
sasl.login.connect.timeout.ms | int
  How long a connection to the OAUTHBEARER provider may take to open, in ms.
sasl.login.read.timeout.ms | int
  How long the broker waits for an answer of the OAUTHBEARER provider, in ms.
sasl.login.refresh.buffer.seconds | short 300 | per-broker
  How long before its expiry a credential is renewed at the latest, in seconds.
sasl.login.refresh.min.period.seconds | short 60 | per-broker
  How long a credential is used at least before it is renewed, in seconds.
sasl.login.refresh.window.factor | double 0.8 | per-broker
  After which part of its lifetime a credential is renewed, 0.5 to 1.
sasl.login.refresh.window.jitter | double 0.05 | per-broker
  How much of the renewal time of a credential is random, 0 to 0.25.
sasl.login.retry.backoff.max.ms | long 10000
  The longest pause between attempts to log in at the OAUTHBEARER provider, in ms.
sasl.login.retry.backoff.ms | long 100
  The first pause between attempts to log in at the OAUTHBEARER provider, in ms.
sasl.mechanism.controller.protocol | string GSSAPI
  The SASL mechanism of connections to KRaft controllers.
sasl.mechanism.inter.broker.protocol | string GSSAPI | per-broker
  The SASL mechanism of connections between brokers.
sasl.oauthbearer.clock.skew.seconds | int 30
  By how many seconds the clocks of broker and provider may differ.
sasl.oauthbearer.expected.audience | list
  The audiences of which a token must name one. Without a value all are accepted.
sasl.oauthbearer.expected.issuer | string
  The issuer that a token must name. Without a value all are accepted.
sasl.oauthbearer.jwks.endpoint.refresh.ms | long 3600000
  How often the keys of the provider are read again, in ms.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | long 10000
  The longest pause between attempts to read the keys of the provider, in ms.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | long 100
  The first pause between attempts to read the keys of the provider, in ms.
sasl.oauthbearer.jwks.endpoint.url | string
  Where the keys of the OAUTHBEARER provider are: a URL or a file.
sasl.oauthbearer.scope.claim.name | string scope
  The claim of a token that holds its scope.
sasl.oauthbearer.sub.claim.name | string sub
  The claim of a token that holds its subject.
sasl.oauthbearer.token.endpoint.url | string
  The URL at which the broker gets tokens for its own connections.
sasl.server.callback.handler.class | class
  The SASL callback handler of the broker.
sasl.server.max.receive.size | int 524288
  The size of the largest SASL message, in bytes.
security.inter.broker.protocol | string PLAINTEXT | one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
  The security protocol between brokers, if inter.broker.listener.name is not set: PLAINTEXT, SSL,
  SASL_PLAINTEXT or SASL_SSL.
security.providers | string
  Java classes that add security providers.
ssl.allow.dn.changes | boolean false
  Whether a new certificate of the broker may have another distinguished name.
ssl.allow.san.changes | boolean false
  Whether a new certificate of the broker may lack alternative names of the old one.
ssl.cipher.suites | list "" | per-broker
  The cipher suites that are allowed. Without a value all that the library allows.
ssl.client.auth | string none | one of required, requested, none | per-broker
  Whether clients must present a certificate: required, requested or none.
ssl.enabled.protocols | list TLSv1.2,TLSv1.3 | per-broker
  The versions of TLS that are allowed.
ssl.endpoint.identification.algorithm | string https | per-broker
  How the name of a server is checked against its certificate: https, or empty for no check.
ssl.engine.factory.class | class | per-broker
  A Java class that makes TLS engines.
ssl.key.password | password | per-broker
  The password of the private key in the key store.
ssl.keymanager.algorithm | string SunX509 | per-broker
  The Java algorithm of the key manager.
ssl.keystore.certificate.chain | password | per-broker
  The certificates of the broker as PEM text, its own first.
ssl.keystore.key | password | per-broker
  The private key of the broker as PEM text (PKCS#8).
ssl.keystore.location | string | per-broker
  The file with the private key and the certificates of the broker.
ssl.keystore.password | password | per-broker
  The password of the key store. PEM stores have none.
ssl.keystore.type | string JKS | per-broker
  The format of the key store: JKS, PKCS12 or PEM.
ssl.principal.mapping.rules | string DEFAULT
  The rules that make short user names of the distinguished names of client certificates. The first one that
  matches applies.
ssl.protocol | string TLSv1.3 | per-broker
  The version of TLS with which the TLS context is made.
ssl.provider | string | per-broker
  The Java security provider for TLS.
ssl.secure.random.implementation | string | per-broker
  The Java source of random numbers for TLS.
ssl.trustmanager.algorithm | string PKIX | per-broker
  The Java algorithm of the trust manager.
ssl.truststore.certificates | password | per-broker
  The trusted certificates as PEM text.
ssl.truststore.location | string | per-broker
  The file with the trusted certificates.
ssl.truststore.password | password | per-broker
  The password of the trust store. PEM stores have none.
ssl.truststore.type | string JKS | per-broker
  The format of the trust store: JKS, PKCS12 or PEM.
zookeeper.ssl.cipher.suites | list
  The cipher suites of the connection to ZooKeeper.
zookeeper.ssl.client.enable | boolean false
  Whether the connection to ZooKeeper uses TLS.
zookeeper.ssl.crl.enable | boolean false
  Whether revocation lists are checked in TLS with ZooKeeper.
zookeeper.ssl.enabled.protocols | list
  The versions of TLS with ZooKeeper.
zookeeper.ssl.endpoint.identification.algorithm | string HTTPS
  How the name of a ZooKeeper server is checked against its certificate: https, or empty for no check.
zookeeper.ssl.keystore.location | string
  The file with the private key and the certificates for ZooKeeper.
zookeeper.ssl.keystore.password | password
  The password of the key store for ZooKeeper.
zookeeper.ssl.keystore.type | string
  The format of the key store for ZooKeeper. Without a value it is known by the file's name.
zookeeper.ssl.ocsp.enable | boolean false
  Whether OCSP is used in TLS with ZooKeeper.
zookeeper.ssl.protocol | string TLSv1.2
  The version of TLS that connections to ZooKeeper begin with.
zookeeper.ssl.truststore.location | string
  The file with the certificates that are trusted for ZooKeeper.
zookeeper.ssl.truststore.password | password
  The password of the trust store for ZooKeeper.
zookeeper.ssl.truststore.type | string
  The format of the trust store for ZooKeeper. Without a value it is known by the file's name.
""")
