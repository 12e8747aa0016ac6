"""JAAS is read as Kafka reads it, and no error shows what may be a password."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import FormatError
from klog.security.authentication.jaas import JaasEntry, parse_jaas, parse_jaas_file

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("required;", {}),
        ("REQUIRED ;", {}),
        ("Sufficient a=b;", {"a": "b"}),
        (
            """optional user_alice="al,;ice" user_b-c_d=word;""",
            {"user_alice": "al,;ice", "user_b-c_d": "word"},
        ),
        (r'requisite a="say \"x\"\\ \n\101";', {"a": 'say "x"\\ \nA'}),
        ("required a='single \"';", {"a": 'single "'}),
        ("required // words\n /* more; */ a = b # ;", None),
        ("required // words\n /* more; */ a = b ;", {"a": "b"}),
        ("required a=b a=c;", {"a": "c"}),
        ('required a="1024";', {"a": "1024"}),
        ("required a=1024;", None),
        ("required a=;", None),
        ("required a b;", None),
        ("required a=b", None),
        ("", None),
        ("needed;", None),
        ("required; x.Y required;", None),
        ('required a="unfinished;', None),
    ],
)
def test_one_entry(text: str, options: dict[str, str] | None) -> None:
    if options is not None:
        assert parse_jaas(f"{MODULE} {text}") == JaasEntry(MODULE, options)
        return
    with pytest.raises(FormatError):
        parse_jaas(f"{MODULE} {text}")


@pytest.mark.parametrize("text", ["", "  ", "// only words", "= required;", '"'])
def test_what_names_no_login_module(text: str) -> None:
    with pytest.raises(FormatError):
        parse_jaas(text)


def test_an_error_shows_no_password() -> None:
    with pytest.raises(FormatError) as refused:
        parse_jaas(f'{MODULE} required username="u" password=hunter2!;')
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(JaasEntry(MODULE, {"password": "hunter2"}))


@given(st.text(max_size=200))
def test_any_text_is_an_entry_or_an_error(text: str) -> None:
    with suppress(FormatError):
        parse_jaas(text)


def test_a_file_has_sections() -> None:
    text = """
    // of the brokers
    KafkaServer {
       x.Plain required username="admin" user_admin="s";
       x.Scram required;
    };
    external.KafkaServer { };
    """
    assert parse_jaas_file(text) == {
        "KafkaServer": [
            JaasEntry("x.Plain", {"username": "admin", "user_admin": "s"}),
            JaasEntry("x.Scram", {}),
        ],
        "external.KafkaServer": [],
    }


@pytest.mark.parametrize(
    "text", ["KafkaServer", "KafkaServer {", "KafkaServer { x.Y required; }", "{ };", "A { x; };"]
)
def test_a_file_that_is_no_jaas(text: str) -> None:
    with pytest.raises(FormatError):
        parse_jaas_file(text)
