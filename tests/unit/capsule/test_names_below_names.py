"""A secret whose name stands where another name's value might stand."""

from __future__ import annotations

import pytest

from prismdbg.capsule.secrets.rules import (
    found_in,
)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('secrets:\n  API_KEY: "hunter2x9"', "hunter2x9"),
        ("secrets:\n  DB_PASSWORD: hunter2\n", "hunter2"),
        ("passwords:\n  db1_password: hunter22a", "hunter22a"),
        ("credentials:\n  AWS_SECRET_ACCESS_KEY: wJalrXUtnFEMI/K7MDENGbPxRfi1", "wJalrXUtnFEMI/K7MDENGbPxRfi1"),
        ('SMTP_PASSWORD=\nWANDB_API_KEY="abcdef123456"', "abcdef123456"),
        ("password:\nDB_PASSWORD: hunter22", "hunter22"),
        ('secret: {password: "hunter22"}', "hunter22"),
        ('secrets: password="hunter22"', "hunter22"),
        ("token=xK3:password='hunter22'", "hunter22"),
        ("password=abc:def=ghi12", "abc:def=ghi12"),
        ("DB_PASSWORD=" + "a1B2" * 300, "a1B2" * 300),
        ("DB_PASSWORD=" + "a1B2" * 300 + ":API_KEY='hunter22'", "hunter22"),
    ],
)
def test_it_is_found(text: str, secret: str) -> None:
    assert any(secret in found.value for found in found_in(text))
