"""Encrypted secrets of the tree: klog decrypts what Kafka encrypts, and Kafka what klog encrypts."""

from __future__ import annotations

import base64
import sys

import pytest

from klog.config.broker import BrokerConfig
from klog.config.dynamic import decoded, encoded, reencrypted
from klog.config.password_encoder import PasswordEncoder, encoder_of
from klog.formats.errors import UsageError
from tests.peers.kafka import KafkaPeer

KEY = "listener.name.secure.ssl.key.password"
CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
ALGORITHMS = [
    ("PBKDF2WithHmacSHA512", CBC, 128, 4096),
    ("PBKDF2WithHmacSHA1", CBC, 256, 1024),
    ("PBKDF2WithHmacSHA224", CBC, 192, 1025),
    ("PBKDF2WithHmacSHA256", GCM, 128, 4096),
    ("PBKDF2WithHmacSHA384", GCM, 256, 2000),
]
# A length that fills the last block, no length, and characters that count twice in Java.
TEXTS = ["secret", "exactly 16 bytes", "", "käse 🔑", "-----BEGIN CERTIFICATE-----\nMIIB\n" * 50]
SECRETS = ["s", "geheim ü 🔑"]
CASES = [(secret, text, *each) for each in ALGORITHMS for text in TEXTS for secret in SECRETS]


def text64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.kafka
def test_secrets_that_kafka_has_encrypted_are_decrypted(kafka3: KafkaPeer) -> None:
    asked = "".join(
        f"encode\t{secret}\t{factory}\t{cipher}\t{bits}\t{iterations}\t{text64(text)}\n"
        for secret, text, factory, cipher, bits, iterations in CASES
    )
    stored = kafka3.java("PasswordEncoding", stdin=asked.encode()).stdout.decode().splitlines()
    assert len(stored) == len(CASES)
    for (secret, text, *_), each in zip(CASES, stored, strict=True):
        # The encrypted form names its algorithms.
        assert PasswordEncoder(secret).decode(each) == text


@pytest.mark.kafka
def test_kafka_decrypts_klogs_secrets_only_with_the_same_password_encoder_secret(kafka3: KafkaPeer) -> None:
    stored = [
        PasswordEncoder(secret, cipher, bits, iterations, factory).encode(text)
        for secret, text, factory, cipher, bits, iterations in CASES
    ]
    asked = "".join(f"decode\t{case[0]}\t{each}\n" for case, each in zip(CASES, stored, strict=True))
    asked += "".join(f"decode\tother\t{each}\n" for each in stored[-2:])
    answers = kafka3.java("PasswordEncoding", stdin=asked.encode()).stdout.decode().splitlines()
    assert answers == [text64(text) for _, text, *_ in CASES] + ["no", "no"]


def test_the_same_secret_is_encrypted_differently_each_time() -> None:
    encoder = PasswordEncoder("s")
    assert encoder.encode("x") != encoder.encode("x")


@pytest.mark.parametrize("cipher", [CBC, GCM])
def test_another_secret_decrypts_nothing(cipher: str) -> None:
    # A wrong key gives valid padding once in 256 times by chance; these fixed bytes are not such a case.
    encoder = PasswordEncoder("s", cipher, random_bytes=bytes)
    with pytest.raises(UsageError, match="encrypted with"):
        PasswordEncoder("t").decode(encoder.encode("a secret"))


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("", "keyFactoryAlgorithm"),
        ("plain text", "keyFactoryAlgorithm"),
        ("keyLength:128,initializationVector:x,encryptedPassword:y", "keyFactoryAlgorithm"),
        ("iterations:many", "not a secret that was encrypted"),
        ("iterations:0", "password.encoder.iterations 0"),
        ("iterations:" + "9" * 30, "password.encoder.iterations 9"),
        ("keyLength:13", "password.encoder.key.length 13"),
        ("keyLength:" + "8" * 30, "password.encoder.key.length 8"),
        ("salt:*", "not a secret that was encrypted"),
        ("initializationVector:AAAA", "not a secret that was encrypted"),
        ("encryptedPassword:AAAA", "not a secret that was encrypted"),
        ("cipherAlgorithm:DES/CBC/PKCS5Padding", "DES/CBC/PKCS5Padding is not known here"),
        ("keyFactoryAlgorithm:PBEWithMD5AndDES", "PBEWithMD5AndDES is not known here"),
        ("passwordLength:3", "another password.encoder.secret"),
    ],
)
def test_an_invalid_encrypted_form_is_an_error(broken: str, why: str) -> None:
    encoder = PasswordEncoder("s", iterations=1024)
    sound = encoder.encode("x")
    # Of a duplicate field the last value counts.
    stored = f"{sound},{broken}" if broken.count(":") == 1 else broken
    with pytest.raises(UsageError, match=why):
        encoder.decode(stored)


def test_the_configs_choose_the_algorithms() -> None:
    assert encoder_of(BrokerConfig({})) is None
    configured = encoder_of(
        BrokerConfig(
            {
                "password.encoder.secret": "s",
                "password.encoder.cipher.algorithm": GCM,
                "password.encoder.key.length": "256",
                "password.encoder.iterations": "2048",
                "password.encoder.keyfactory.algorithm": "PBKDF2WithHmacSHA256",
            }
        )
    )
    assert configured == PasswordEncoder("s", GCM, 256, 2048, "PBKDF2WithHmacSHA256")
    assert "'s'" not in repr(configured)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"password.encoder.cipher.algorithm": "AES/CFB/PKCS5Padding"}, "AES/CFB/PKCS5Padding is not known"),
        ({"password.encoder.key.length": "64"}, "password.encoder.key.length"),
        ({"password.encoder.keyfactory.algorithm": "X"}, "keyfactory.algorithm X is not known"),
    ],
)
def test_unusable_algorithms_are_refused_when_a_secret_is_set(config: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        encoded({KEY: "x"}, BrokerConfig({"password.encoder.secret": "s", **config}), per_broker=True)


def test_without_the_package_for_encryption_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = PasswordEncoder("s").encode("x")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    for use in (lambda: PasswordEncoder("s").encode("x"), lambda: PasswordEncoder("s").decode(stored)):
        with pytest.raises(UsageError, match="cryptography") as refused:
            use()
        assert "klog[secrets]" in (refused.value.cure or "")


def test_secrets_need_a_single_broker_and_the_encoders_secret() -> None:
    with pytest.raises(UsageError, match="Password encoder secret not configured"):
        encoded({KEY: "x"}, BrokerConfig({}), per_broker=True)
    # This includes the secrets of plugins.
    config = BrokerConfig({"password.encoder.secret": "s"})
    with pytest.raises(UsageError, match="only at broker level"):
        encoded({"plugin.sasl.jaas.config": "x"}, config, per_broker=False)
    assert encoded({"num.io.threads": "3"}, BrokerConfig({}), per_broker=False) == {"num.io.threads": "3"}
    stored = encoded({KEY: "x", "num.io.threads": "3"}, config, per_broker=True)
    assert stored["num.io.threads"] == "3"
    assert decoded(stored, config) == ({KEY: "x", "num.io.threads": "3"}, {})
    assert decoded(stored, BrokerConfig({})) == (
        {"num.io.threads": "3"},
        {KEY: "password.encoder.secret is not set"},
    )


def test_the_old_secret_decrypts_what_the_new_one_encrypts_again() -> None:
    old, new = PasswordEncoder("old", iterations=1024), PasswordEncoder("new", iterations=1024)
    other = "listener.name.secure.ssl.keystore.key"
    stored = {KEY: old.encode("x"), other: new.encode("y"), "num.io.threads": "3"}
    secrets = {"password.encoder.secret": "new", "password.encoder.old.secret": "old"}
    renewed = reencrypted(stored, BrokerConfig(secrets))
    assert renewed[other] == stored[other]
    assert decoded(renewed, BrokerConfig({"password.encoder.secret": "new"})) == (
        {KEY: "x", other: "y", "num.io.threads": "3"},
        {},
    )
    # At the next start the old secret may still be in the file, and nothing is left to do.
    assert reencrypted(renewed, BrokerConfig(secrets)) == renewed
    assert reencrypted(stored, BrokerConfig({"password.encoder.secret": "new"})) == stored
    with pytest.raises(UsageError, match="not configured"):
        reencrypted(stored, BrokerConfig({"password.encoder.old.secret": "old"}))
